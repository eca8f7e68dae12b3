//! What compiled code calls to copy, fill and compare memory, which a C library would have.

/// # Safety
/// As memcpy(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's duty.
    unsafe { forwards(to, from, length) };
    to
}

/// # Safety
/// As memmove(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's duty; what overlaps is copied from its end.
    unsafe {
        if (to as usize).wrapping_sub(from as usize) >= length {
            forwards(to, from, length);
        } else {
            for index in (0..length).rev() {
                to.add(index).write_volatile(from.add(index).read_volatile());
            }
        }
    }
    to
}

/// # Safety
/// As memset(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    for index in 0..length {
        // SAFETY: the caller's duty. Volatile, or the compiler would make a call of memset of it.
        unsafe { to.add(index).write_volatile(byte as u8) };
    }
    to
}

/// # Safety
/// As memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    for index in 0..length {
        // SAFETY: the caller's duty.
        let (a, b) = unsafe { (one.add(index).read_volatile(), other.add(index).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// # Safety
/// As bcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    // SAFETY: the caller's duty.
    unsafe { memcmp(one, other, length) }
}

/// # Safety
/// As memcpy(3).
unsafe fn forwards(to: *mut u8, from: *const u8, length: usize) {
    for index in 0..length {
        // SAFETY: the caller's duty. Volatile, as above.
        unsafe { to.add(index).write_volatile(from.add(index).read_volatile()) };
    }
}

/// # Safety
/// As strlen(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller's duty.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}
