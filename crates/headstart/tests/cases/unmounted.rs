//! What is unmounted when the command ends is learned, and the unmount succeeds.
