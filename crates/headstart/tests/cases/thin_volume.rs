//! Layout on a volume that is thin below stops before it fills what lies below.
