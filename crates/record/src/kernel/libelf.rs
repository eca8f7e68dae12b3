//! Four functions that the static libelf of Debian 13 calls and does not hold
//! (docs/decisions/0007-debian-13s-static-libelf.md).
//!
//! elfutils 0.192 keeps the raw chunks that `elf_getdata_rawchunk` was asked for in a search tree, and calls
//! the tree through functions of its private library libeu (lib/eu-search.c), which libelf.so contains and
//! libelf.a does not (<https://sourceware.org/bugzilla/show_bug.cgi?id=32293>, mended in 0.193). A static
//! program that opens an ELF file with it cannot be linked. These do what libeu's do: they are the C
//! library's `tsearch`, `tdelete` and `tdestroy` on the tree's root.
//!
//! libbpf, the only user of libelf here, never asks for a raw chunk: its trees are made, stay empty, and are
//! given up. Where libelf.a calls none of them (0.191 and older) these are dead code of 100 bytes; where it
//! holds its own (0.193 and newer) the linker takes these, since they come first, and leaves that member of
//! the archive out.

use std::ffi::{c_int, c_void};
use std::ptr;

/// elfutils' `search_tree`. A lock follows the root; Debian builds elfutils without `--enable-thread-safety`,
/// so it is an `int` that nothing uses. Were it a real one, only these four functions would take it, and
/// libbpf uses an `Elf` in one thread.
#[repr(C)]
pub struct SearchTree {
    root: *mut c_void,
}

/// Compares two keys, as `tsearch` wants it.
type Compare = extern "C" fn(*const c_void, *const c_void) -> c_int;
/// Frees what a node points to, as `tdestroy` wants it.
type Free = extern "C" fn(*mut c_void);

unsafe extern "C" {
    fn tsearch(key: *const c_void, root: *mut *mut c_void, compare: Compare) -> *mut c_void;
    fn tdelete(key: *const c_void, root: *mut *mut c_void, compare: Compare) -> *mut c_void;
    fn tdestroy(root: *mut c_void, free: Free);
}

/// Makes a tree empty.
///
/// # Safety
///
/// `tree` points to memory of a `search_tree` that may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn eu_search_tree_init(tree: *mut SearchTree) {
    // SAFETY: the caller's promise; what was there before is not read.
    unsafe { (&raw mut (*tree).root).write(ptr::null_mut()) };
}

/// Frees all nodes of a tree, and by `free` what they point to.
///
/// # Safety
///
/// `tree` was made by [`eu_search_tree_init`], and `free` may be called on every key in it.
#[unsafe(no_mangle)]
unsafe extern "C" fn eu_search_tree_fini(tree: *mut SearchTree, free: Free) {
    // SAFETY: the caller's promise; the root is null (then nothing is done) or came from `tsearch`. It is
    // null afterwards, so that no node is freed twice.
    unsafe {
        tdestroy((*tree).root, free);
        (*tree).root = ptr::null_mut();
    }
}

/// The node of a key, which is added if the tree has none; null without memory.
///
/// # Safety
///
/// `tree` was made by [`eu_search_tree_init`], and `compare` may be called on `key` and every key in it.
#[unsafe(no_mangle)]
unsafe extern "C" fn eu_tsearch(key: *const c_void, tree: *mut SearchTree, compare: Compare) -> *mut c_void {
    // SAFETY: the caller's promise; the root is null or came from `tsearch`.
    unsafe { tsearch(key, &raw mut (*tree).root, compare) }
}

/// Takes a key's node out of a tree; null if there is none.
///
/// # Safety
///
/// As [`eu_tsearch`].
#[unsafe(no_mangle)]
unsafe extern "C" fn eu_tdelete(key: *const c_void, tree: *mut SearchTree, compare: Compare) -> *mut c_void {
    // SAFETY: the caller's promise; the root is null or came from `tsearch`.
    unsafe { tdelete(key, &raw mut (*tree).root, compare) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    static FREED: AtomicU64 = AtomicU64::new(0);

    extern "C" fn compare(a: *const c_void, b: *const c_void) -> c_int {
        // SAFETY: the test's keys point to numbers that outlive the tree.
        let (a, b) = unsafe { (*a.cast::<u64>(), *b.cast::<u64>()) };
        a.cmp(&b) as c_int
    }

    extern "C" fn free(key: *mut c_void) {
        // SAFETY: as above. Each key is another bit, so that one that is freed twice shows.
        FREED.fetch_add(unsafe { *key.cast::<u64>() }, Ordering::Relaxed);
    }

    /// That the symbols resolve at all shows only against a libelf.a that lacks them: `make test-debian13`.
    #[test]
    fn the_trees_of_debian_13s_libelf_keep_find_and_free_what_is_put_in() {
        let keys: [u64; 5] = [8, 2, 16, 1, 4];
        let key = |n: &u64| ptr::from_ref(n).cast::<c_void>();
        // A root that was never set must not be read.
        let mut tree = SearchTree {
            root: ptr::dangling_mut::<u64>().cast(),
        };
        // SAFETY: one tree, made first and given up last; the keys outlive it.
        unsafe {
            eu_search_tree_init(&mut tree);
            eu_search_tree_fini(&mut tree, free);
            assert_eq!(FREED.load(Ordering::Relaxed), 0, "an empty tree frees nothing");

            for n in &keys {
                let node = eu_tsearch(key(n), &mut tree, compare).cast::<*const c_void>();
                assert_eq!(*node, key(n), "a new key's node points to it");
            }
            let same = 16_u64;
            let node = eu_tsearch(key(&same), &mut tree, compare).cast::<*const c_void>();
            assert_eq!(*node, key(&keys[2]), "an equal key finds the first");
            assert!(!eu_tdelete(key(&keys[0]), &mut tree, compare).is_null());
            assert!(
                eu_tdelete(key(&keys[0]), &mut tree, compare).is_null(),
                "8 is gone"
            );

            eu_search_tree_fini(&mut tree, free);
            assert_eq!(
                FREED.load(Ordering::Relaxed),
                2 + 16 + 1 + 4,
                "each of the rest once"
            );
            eu_search_tree_fini(&mut tree, free);
            assert_eq!(FREED.load(Ordering::Relaxed), 23, "and none again");
        }
    }
}
