/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the programs read that has another name or shape on another kernel; each flavour under the versions it
 * is for.
 */
#ifndef HEADSTART_COMPAT_H
#define HEADSTART_COMPAT_H

#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* struct inode: modification time, 6.11 and later. */
struct inode___611 {
	s64 i_mtime_sec;
	u32 i_mtime_nsec;
};

/* struct inode: modification time, 6.7 to 6.10. */
struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
};
struct inode___67 {
	struct timespec64 __i_mtime;
};

/* struct inode: modification time, up to 6.6. */
struct inode___old {
	struct timespec64 i_mtime;
};

/* struct dentry: the link to the inode's other names, up to 7.1. */
struct dentry___old {
	union {
		struct hlist_node d_alias;
	} d_u;
};

/* struct dentry: the same, 7.2 and later. */
struct dentry___72 {
	struct hlist_node d_alias;
};

/* Flags of a page or folio: a number of its own type, 6.18 and later. */
typedef struct {
	unsigned long f;
} memdesc_flags_t;
struct folio___618 {
	memdesc_flags_t flags;
	unsigned int _nr_pages;
};

/* struct folio: 6.13 to 6.17, `_nr_pages` and plain flags. */
struct folio___613 {
	unsigned long flags;
	unsigned int _nr_pages;
};

/* struct folio: 6.1 to 6.12. */
struct folio___61 {
	unsigned long flags;
	unsigned int _folio_nr_pages;
};

/* struct folio: 5.16 and later, what all of them share. */
struct folio {
	struct address_space *mapping;
	unsigned long index;
};

/* struct page: up to 5.15 the page cache event gives one of these. */
struct page {
	struct address_space *mapping;
	unsigned long index;
};

/* struct request: its disk, up to 5.16. */
struct request___516 {
	struct gendisk *rq_disk;
};

/* struct task_struct: what a task waits for, 5.14 and later. */
struct task_struct___514 {
	unsigned int __state;
};

/* struct task_struct: the same, up to 5.13. */
struct task_struct___old {
	volatile long state;
};

/* struct thread_info: system calls of 32-bit programs on x86. */
struct thread_info___x86 {
	u32 status;
};
struct task_struct___x86 {
	struct thread_info___x86 thread_info;
};

enum pageflags {
	PG_head = 6,
};

#pragma clang attribute pop

static __always_inline s64 inode_mtime_ns(const struct inode *inode)
{
	const struct inode___611 *i611 = (const void *)inode;
	const struct inode___67 *i67 = (const void *)inode;
	const struct inode___old *old = (const void *)inode;

	if (bpf_core_field_exists(i611->i_mtime_sec))
		return BPF_CORE_READ(i611, i_mtime_sec) * 1000000000LL + BPF_CORE_READ(i611, i_mtime_nsec);
	if (bpf_core_field_exists(i67->__i_mtime))
		return BPF_CORE_READ(i67, __i_mtime.tv_sec) * 1000000000LL + BPF_CORE_READ(i67, __i_mtime.tv_nsec);
	return BPF_CORE_READ(old, i_mtime.tv_sec) * 1000000000LL + BPF_CORE_READ(old, i_mtime.tv_nsec);
}

/* Where in a dentry the link lies that the inode's list of names goes through. */
static __always_inline u64 dentry_alias_offset(void)
{
	const struct dentry___72 *d72 = NULL;

	if (bpf_core_field_exists(d72->d_alias))
		return bpf_core_field_offset(d72->d_alias);
	return bpf_core_field_offset(((const struct dentry___old *)NULL)->d_u.d_alias);
}

/* Pages of a folio. Only a large one, marked by a flag, has room for its number. */
static __always_inline u32 folio_pages(const void *folio)
{
	const struct folio___618 *f618 = folio;
	const struct folio___613 *f613 = folio;
	const struct folio___61 *f61 = folio;
	unsigned long flags, head = 1UL << bpf_core_enum_value(enum pageflags, PG_head);
	u32 pages = 0;

	if (bpf_core_field_exists(f618->flags.f))
		flags = BPF_CORE_READ(f618, flags.f);
	else
		flags = BPF_CORE_READ(f613, flags);
	if (!(flags & head))
		return 1;
	if (bpf_core_field_exists(f618->_nr_pages))
		pages = BPF_CORE_READ(f618, _nr_pages);
	else if (bpf_core_field_exists(f61->_folio_nr_pages))
		pages = BPF_CORE_READ(f61, _folio_nr_pages);
	return pages ? pages : 1;
}

/* The disk that a request is for. */
static __always_inline const struct gendisk *request_disk(const struct request *request)
{
	const struct request___516 *old = (const void *)request;

	if (bpf_core_field_exists(old->rq_disk))
		return BPF_CORE_READ(old, rq_disk);
	return BPF_CORE_READ(request, q, disk);
}

/* Whether a task that leaves its processor wants it back at once. */
static __always_inline bool is_runnable(const struct task_struct *task)
{
	const struct task_struct___514 *t514 = (const void *)task;
	const struct task_struct___old *old = (const void *)task;

	if (bpf_core_field_exists(t514->__state))
		return BPF_CORE_READ(t514, __state) == 0;
	return BPF_CORE_READ(old, state) == 0;
}

#endif
