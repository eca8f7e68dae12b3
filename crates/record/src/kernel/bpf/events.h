/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The records of the ring buffer; wire.rs reads them. Every record begins with its type. */
#ifndef HEADSTART_EVENTS_H
#define HEADSTART_EVENTS_H

#include "kernel.h"

enum record_type {
	RECORD_USE = 1,
	RECORD_METADATA = 2,
	RECORD_FORK = 3,
	RECORD_EXIT = 4,
	RECORD_FILE = 5,
	RECORD_EXEC = 6,
	RECORD_LOOKUP = 7,
	RECORD_RAN = 8,
	RECORD_REQUEST = 9,
	RECORD_START = 10,
};

/* As headstart_model::trace::UseKind. */
enum use_kind {
	USE_READ = 0,
	USE_MAP = 1,
	USE_FAULT = 2,
	USE_ADD = 3,
};

struct record_head {
	u8 type;
	u8 kind;  /* of a use, a lookup, a request; what a thread waited for */
	u8 flags; /* of a file, a lookup or a request */
	/*
	 * Of a use or a file, where everybody is recorded: 0 for root, else whose it is, by group_of_user().
	 * In scope watch: the slot of the start that it belongs to.
	 */
	u8 whose;
	u32 pid;
	u64 time_ns;
};

struct record_use {
	struct record_head head;
	u64 file;
	u64 start;
	u32 pages;
	u32 touched;	   /* of pages mapped around a fault, the one it was for, counted from one; 0: not known */
	u64 mapped_from;   /* of a page touched, the part of the file that was mapped there in one piece */
	u64 mapped_pages; /* 0: not known */
};

struct record_metadata {
	struct record_head head;
	u64 start;
	u32 dev;
	u32 pages;
};

struct record_fork {
	struct record_head head; /* pid: the parent */
	u32 child;
	u32 unused;
};

struct record_exit {
	struct record_head head;
	u32 status; /* as wait(2) has it */
	u32 unused;
};

/* What a thread that does not run waits for. */
enum wait_kind {
	WAIT_DISK = 1,
	WAIT_OTHER = 2,
	WAIT_PROCESSOR = 3, /* or it has ended */
};

/* A thread ran, then waited until now. */
struct record_ran {
	struct record_head head;
	u64 from_ns;
	u64 until_ns;
	u32 thread;
	u32 unused;
};

/* As headstart_model::activity::RequestKind. */
enum request_kind {
	REQUEST_READ = 0,
	REQUEST_WRITE = 1,
	REQUEST_DISCARD = 2,
	REQUEST_FLUSH = 3,
	REQUEST_OTHER = 4,
};

#define REQUEST_METADATA 1
#define REQUEST_AHEAD 2

/* A block device has answered a request. */
struct record_request {
	struct record_head head; /* pid: 0 if it is not known */
	u64 issued_ns;
	u64 sector;
	u32 sectors;
	u32 dev;
};

/*
 * Records with text. A place is a device, a mount (0: not known) and the length of its names, which follow
 * one another from the last to the first, each with a NUL behind it.
 */
struct place {
	u32 dev;
	u32 mount;
	u32 length;
	u32 whole; /* 0: the names do not reach the root of the file system */
};

/* It has several names, and which of them was used is not known. */
#define FILE_BY_SOME_NAME 1

struct record_file {
	struct record_head head;
	u64 id;
	u64 inode;
	u64 size;
	s64 mtime_ns;
	u32 generation;
	u32 mode;
	struct place place;
};

struct record_exec {
	struct record_head head;
	struct place executable;
};

/*
 * A start has begun (scope watch): head.pid runs something else from now on, and is recorded. Its arguments
 * follow the place.
 */
struct record_start {
	struct record_head head;
	u64 program; /* what a standing about it is kept under */
	u64 ignored; /* the same, of this user's executions of it */
	u64 executable; /* the same for whatever the executable is given to do */
	u64 file; /* the executable, whether or not the kernel has to read it anew: see `known` */
	u32 start; /* its number, of which the lowest bits are its slot */
	u32 before; /* the start that the process belonged to; 0: none */
	u32 apart; /* not 0: the process has left that start; 0: about that one nothing was answered yet */
	u32 arguments; /* their length, bytes, with a NUL behind each */
	u32 parent; /* its number, as that of the process; 0 where it has none there */
	u32 zero;
	struct place place;
};

#define LOOKUP_FOUND 1
#define LOOKUP_HAS_BASE 2
#define LOOKUP_HAS_ROOT 4

struct record_lookup {
	struct record_head head;
	u32 length; /* of the path, with its NUL */
	u32 uid;    /* whose process it is */
	struct place base;
	struct place root;
};

#endif
