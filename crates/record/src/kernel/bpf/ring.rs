//! The reader of the BPF ring buffer.
//!
//! libbpf has one, but it goes on for as long as events come, which a flood makes for ever, or else counts
//! records over all buffers; and it hands records to callbacks that live as long as the buffer. This one
//! lends them to whoever drains, without a copy, up to where the programs were when asked.

use crate::error::RecordError;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Set in a record's length while it is being written.
const BUSY: u32 = 1 << 31;
/// Set in a record's length if it is to be skipped.
const DISCARDED: u32 = 1 << 30;
/// Bytes before a record: its length and a word of the kernel's own.
const HEADER: u64 = 8;

/// A ring buffer, mapped as Documentation/bpf/ringbuf.rst says: a page with the consumer's position, which we
/// may write, a page with the producers', and the data twice in a row, so that every record is in one piece.
pub(super) struct Ring {
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    size: u64,
}

impl Ring {
    /// The buffer behind `map`, of `size` bytes.
    pub(super) fn new(map: BorrowedFd<'_>, size: usize) -> Result<Ring, RecordError> {
        let page = rustix::param::page_size();
        let consumer = Mapping::new(map, page, 0, libc::PROT_READ | libc::PROT_WRITE)?;
        let producer = Mapping::new(map, page + 2 * size, page, libc::PROT_READ)?;
        Ok(Ring {
            consumer,
            producer,
            page,
            size: size as u64,
        })
    }

    /// How far the programs have written.
    pub(super) fn written(&self) -> u64 {
        self.producer.word(0).load(Ordering::Acquire)
    }

    /// The share of it that waits to be drained, with the programs having written up to `end`.
    pub(super) fn used(&self, end: u64) -> f64 {
        end.saturating_sub(self.consumer.word(0).load(Ordering::Relaxed)) as f64 / self.size as f64
    }

    /// Lends every finished record before `end`, which was [`written`](Ring::written), to `take`, in the
    /// order in which their writing began, and frees it. Ends before a record that is still being written,
    /// and returns whether there was none.
    pub(super) fn drain(&mut self, end: u64, mut take: impl FnMut(&[u8])) -> bool {
        let consumer = self.consumer.word(0);
        let mut at = consumer.load(Ordering::Relaxed);
        while at < end {
            let offset = self.page + (at & (self.size - 1)) as usize;
            let length = self.producer.half_word(offset).load(Ordering::Acquire);
            if length & BUSY != 0 {
                return false;
            }
            let bytes = u64::from(length & !DISCARDED);
            if length & DISCARDED == 0 {
                take(self.producer.bytes(offset + HEADER as usize, bytes as usize));
            }
            at += (bytes + HEADER).next_multiple_of(8);
            consumer.store(at, Ordering::Release);
        }
        true
    }
}

/// Memory shared with the kernel.
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory stays mapped as long as the value lives, whichever thread has it, and is shared with the
// kernel: it is read and written atomically, or by the one reader that `Ring` is.
unsafe impl Send for Mapping {}
// SAFETY: as above; through a shared reference only atomics are given out, and bytes that nobody writes.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(
        map: BorrowedFd<'_>,
        length: usize,
        offset: usize,
        protection: i32,
    ) -> Result<Mapping, RecordError> {
        let cannot = |source| RecordError::io("map a BPF map", source);
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| cannot(std::io::Error::from_raw_os_error(libc::EOVERFLOW)))?;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { start, length }),
            _ => Err(cannot(std::io::Error::last_os_error())),
        }
    }

    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset + 8 <= self.length);
        // SAFETY: in bounds and aligned as asserted, mapped as long as `self` lives, and shared with the
        // kernel, which writes it atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    pub(super) fn half_word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0 && offset + 4 <= self.length);
        // SAFETY: as for `word`.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset <= self.length && length <= self.length - offset);
        // SAFETY: in bounds as asserted, mapped as long as `self` lives; the kernel does not write a finished
        // record before the consumer's position has passed it, which `drain` moves only after the borrow has
        // ended.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
