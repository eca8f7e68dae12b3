/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What threads do when: loaded only where activity is recorded. */
#ifndef SCHED_SLICES_H
#define SCHED_SLICES_H

/*
 * Shorter waits are not told, but count as running: a thread that hands things to another sleeps a hundred
 * thousand times a second, and nobody can see that in a picture of a start. A fast device answers within some
 * tens of microseconds.
 */
#define LEAST_DISK_NS 20000
#define LEAST_OTHER_NS 200000

/*
 * Threads, by the low bits of their number: a collision, of two that live and are so far apart, loses what
 * the other did. User space reads at the end what is not told yet.
 */
#define THREADS (1 << 13)

struct thread {
	u64 from_ns;  /* it runs, or ran, since then */
	u64 until_ns; /* to then; 0: it still does */
	u32 id;	      /* in the initial pid namespace; 0: none */
	u32 waits;    /* for what: enum wait_kind */
	u32 process;  /* the numbers that records have */
	u32 thread;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

/* The thread's number in the recorder's pid namespace. */
static __always_inline u32 thread_number_of(const struct task_struct *task)
{
	struct pid *pid;
	u32 number = 0;

	if (self.level == 0)
		return BPF_CORE_READ(task, pid);
	pid = BPF_CORE_READ(task, thread_pid);
	if (BPF_CORE_READ(pid, level) >= self.level)
		bpf_probe_read_kernel(&number, sizeof(number),
				      upid_at(pid, self.level) + bpf_core_field_offset(struct upid, nr));
	return number;
}

static __always_inline struct thread *thread_of(u32 id)
{
	u32 key = id & (THREADS - 1);

	return bpf_map_lookup_elem(&threads, &key);
}

/* Whether it is told what this thread does; if so, it runs from now on. */
static __always_inline bool begin_thread(struct thread *t, struct task_struct *task, u64 now)
{
	u32 process;

	/* What ends has been told of, and is not told of again. */
	if (task->flags & (PF_KTHREAD | PF_EXITING) || !wanted(task->tgid))
		return false;
	process = number_of(task);
	if (!process)
		return false;
	t->id = task->pid;
	t->process = process;
	t->thread = thread_number_of(task);
	t->from_ns = now;
	t->until_ns = 0;
	return true;
}

/* Tells that a thread ran until `until` and then waited until `now`. */
static __always_inline void send_ran(const struct thread *t, u64 until, u64 now, u8 waits)
{
	struct record_ran *r = bpf_ringbuf_reserve(&activity, sizeof(*r), 0);

	if (!r) {
		count(&unseen);
		return;
	}
	head(&r->head, RECORD_RAN, waits, t->process);
	r->head.time_ns = now;
	r->from_ns = t->from_ns;
	r->until_ns = until;
	r->thread = t->thread;
	r->unused = 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch_slices, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns(), least;
	struct thread *t;

	if (stopped)
		return 0;
	/* Number 0 are the idle tasks. */
	if (prev->pid) {
		t = thread_of(prev->pid);
		if (t && (t->id == prev->pid || begin_thread(t, prev, now))) {
			if (preempt)
				t->waits = WAIT_PROCESSOR;
			else if (BPF_CORE_READ_BITFIELD(prev, in_iowait))
				t->waits = WAIT_DISK;
			else
				t->waits = is_runnable(prev) ? WAIT_PROCESSOR : WAIT_OTHER;
			t->until_ns = now;
		}
	}
	if (!next->pid)
		return 0;
	t = thread_of(next->pid);
	if (!t)
		return 0;
	if (t->id != next->pid) {
		begin_thread(t, next, now);
	} else if (t->until_ns) {
		least = t->waits == WAIT_DISK ? LEAST_DISK_NS : LEAST_OTHER_NS;
		if (now - t->until_ns >= least) {
			send_ran(t, t->until_ns, now, t->waits);
			t->from_ns = now;
		}
		t->until_ns = 0;
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_exit, struct task_struct *task)
{
	struct thread *t = thread_of(task->pid);
	u64 now = bpf_ktime_get_ns();

	if (!t || t->id != task->pid)
		return 0;
	if (!stopped)
		send_ran(t, now, now, WAIT_PROCESSOR);
	t->id = 0;
	return 0;
}

#endif
