// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sees which pages of which files processes use, which paths they look up, which metadata they wait for, and
 * who they are. User space decides which programs to load and attach (load.rs), and reads the ring buffer by
 * timer.
 */
#include "kernel.h"

#include "compat.h"
#include "events.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What the programs need, in this order. */
#include "common.h"
#include "syscall.h"
#include "paths.h"
#include "xarray.h"
#include "page_fault.h"
#include "opened.h"
#include "pages.h"
#include "loop_reads.h"
#include "reads.h"

/* The programs. */
#include "filemap_events.h"
#include "filemap_functions.h"
#include "filemap_add.h"
#include "sys_exit.h"
#include "io_uring.h"
#include "sched_process.h"
#include "sched_switch.h"
#include "sched_slices.h"
#include "block_rq.h"
#include "recorder.h"
