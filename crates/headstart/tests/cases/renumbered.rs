//! Files of file systems that number inodes anew at each mount.
