//! Little-endian numbers in buffers that may be damaged: what is not there reads as `None`.

/// The `u16` at an offset.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

/// The `u32` at an offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

/// A block number of which the upper half lies elsewhere.
pub fn wide(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
