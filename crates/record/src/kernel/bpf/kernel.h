/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's structures, as far as the programs read them. Field names are the kernel's; where they lie is
 * looked up in the running kernel's BTF when the programs are loaded. What differs between kernels is in
 * compat.h.
 */
#ifndef HEADSTART_KERNEL_H
#define HEADSTART_KERNEL_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct hlist_bl_node {
	struct hlist_bl_node *next, **pprev;
};

struct qstr {
	u64 hash_len;
	const unsigned char *name;
};

struct super_block {
	u32 s_dev;
	unsigned long s_flags;
	unsigned long s_magic;
	struct dentry *s_root;
};

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_nlink;
	u32 i_rdev;
	s64 i_size;
	u32 i_generation;
	struct hlist_head i_dentry;
	struct address_space *i_mapping;
};

struct xarray {
	void *xa_head;
};

struct xa_node {
	u8 shift;
	void *slots[64];
};

struct address_space {
	struct inode *host;
	struct xarray i_pages;
	unsigned long nrpages;
};

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct vfsmount mnt;
	int mnt_id;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
	struct address_space *f_mapping;
	s64 f_pos;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path root;
	struct path pwd;
};

struct idr {
	struct xarray idr_rt;
};

struct pid_namespace {
	struct idr idr;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

typedef struct {
	int counter;
} atomic_t;

struct task_io_accounting {
	u64 read_bytes;
};

struct signal_struct {
	atomic_t live;
	struct task_io_accounting ioac;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	struct file *exe_file;
};

struct ns_common {
	unsigned int inum;
};

struct mnt_namespace {
	struct ns_common ns;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

typedef struct {
	u32 val;
} kuid_t;

struct user_namespace {
	struct user_namespace *parent;
	int level; /* 0: the initial one */
	kuid_t owner;
};

struct kernfs_node {
	u64 id;
};

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};

/* Begins with what its groups share, `self`, and so does what `parent` points to. */
struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp; /* of the unified hierarchy */
};

struct cred {
	struct user_namespace *user_ns;
};

struct task_struct {
	unsigned flags;
	int pid;
	int tgid;
	int exit_code;
	unsigned in_iowait : 1;
	struct mm_struct *mm;
	struct nsproxy *nsproxy;
	struct task_io_accounting ioac;
	struct fs_struct *fs;
	struct files_struct *files;
	struct signal_struct *signal;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	const struct cred *real_cred;
	struct css_set *cgroups;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk; /* 5.15 and later */
};

struct request {
	struct request_queue *q;
	u32 cmd_flags;
	u32 __data_len;
	u64 __sector;
};

enum req_flag_bits {
	__REQ_META = 12,
	__REQ_RAHEAD = 19,
};

struct linux_binprm {
	struct file *file;
	const char *filename;
	const char *interp;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
	unsigned long address;
};

struct kiocb {
	struct file *ki_filp;
	s64 ki_pos;
	int ki_flags;
};

/*
 * What io_uring was asked, and what it answered. Of a read the file is the first of it, and its position lies
 * behind.
 */
struct io_cqe {
	s32 res;
};

struct io_rw {
	struct kiocb kiocb;
};

struct io_kiocb {
	u8 opcode;
	struct io_cqe cqe;
};

struct iov_iter {
	unsigned long count;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long bp;
	unsigned long bx;
	unsigned long r8;
	unsigned long r10;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long regs[31];
	unsigned long pstate;
	unsigned long orig_x0;
	int syscallno;
};
#endif

#pragma clang attribute pop

#endif
