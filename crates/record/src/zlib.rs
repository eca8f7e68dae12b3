//! Stands in for zlib, which libelf calls for compressed sections and libbpf for the kernel's configuration:
//! the recorder's object has neither compressed sections nor configuration variables, and zlib is 90 KB of
//! each program (decision 34). Each function fails as zlib does where it has no memory.
//!
//! They are weak: where another libelf calls a function that is not among them, the linker takes zlib's.

use std::arch::global_asm;

/// `Z_MEM_ERROR`, or a null pointer.
#[cfg(target_arch = "x86_64")]
macro_rules! fails {
    (Z_MEM_ERROR) => {
        "mov eax, -4\nret"
    };
    (NULL) => {
        "xor eax, eax\nret"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! fails {
    (Z_MEM_ERROR) => {
        "mov w0, #-4\nret"
    };
    (NULL) => {
        "mov x0, xzr\nret"
    };
}

macro_rules! stand_in {
    ($($name:literal $result:ident),* $(,)?) => {
        global_asm!(
            ".pushsection .text.headstart_zlib, \"ax\", @progbits",
            $(concat!(".weak ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"), fails!($result),)*
            ".popsection",
        );
    };
}

stand_in! {
    "inflateInit_" Z_MEM_ERROR,
    "inflateReset" Z_MEM_ERROR,
    "inflate" Z_MEM_ERROR,
    "inflateEnd" Z_MEM_ERROR,
    "deflateInit_" Z_MEM_ERROR,
    "deflate" Z_MEM_ERROR,
    "deflateEnd" Z_MEM_ERROR,
    "gzopen64" NULL,
    "gzgets" NULL,
    "gzclose" Z_MEM_ERROR,
}
