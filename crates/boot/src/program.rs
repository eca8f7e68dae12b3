//! headstart-init, the program that stands in the place of process 1 (`crates/boot/init`).

/// It; empty for processors that it has not been written for.
pub const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/headstart-init"));

#[path = "../init/ahead.rs"]
pub mod ahead;
#[path = "../init/room.rs"]
pub mod room;
#[cfg(test)]
#[path = "../init/wait.rs"]
mod wait;

#[cfg(test)]
mod tests {
    use super::room::Room;
    use super::wait::Wait;

    #[test]
    fn a_file_system_without_bytes_or_inodes_has_no_room() {
        let room = |free_blocks, inodes, free_inodes| Room {
            kind: 0xef53,
            block: 4096,
            free_blocks,
            inodes,
            free_inodes,
        };
        assert!(room(1024, 1000, 16).is_enough());
        assert!(!room(1023, 1000, 16).is_enough(), "4 MiB");
        assert!(!room(1 << 20, 1000, 15).is_enough());
        assert!(
            room(1024, 0, 0).is_enough(),
            "btrfs makes inodes as they are needed"
        );
        assert!(room(u64::MAX, 0, 0).is_enough(), "no overflow");
        let memory = Room {
            kind: 0x0102_1994,
            ..room(u64::MAX, 0, 0)
        };
        assert!(!memory.is_enough(), "it ends with this boot");
    }

    #[test]
    fn process_1_goes_on_after_an_absolute_time_whatever_words_come() {
        let wait = Wait::new(5_000);
        assert_eq!(wait.patience_ms(5_000), Some(10_000), "for the first word");
        assert_eq!(wait.patience_ms(199_000), Some(6_000), "no word extends it");
        assert!((5_000..205_000).all(|now| wait.patience_ms(now).is_some()));
        assert_eq!(wait.patience_ms(205_000), None);
        assert_eq!(wait.patience_ms(i64::MAX), None);
        assert_eq!(Wait::new(i64::MAX).patience_ms(i64::MAX), None, "no overflow");
        let generator = Wait::of_generator(5_000);
        assert_eq!(generator.patience_ms(64_000), Some(1_000));
        assert_eq!(generator.patience_ms(65_000), None, "before systemd ends it");
    }
}
