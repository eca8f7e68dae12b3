// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* How long processes wait for block devices. */
#ifndef SCHED_SWITCH_H
#define SCHED_SWITCH_H

/* Threads that wait, and since when. Direct-mapped by thread: a collision loses the one that waits longer. */
#define WAITS (1 << 12)

struct wait {
	u32 thread;
	u32 slot; /* of its start; 0 where there is one only */
	u64 since_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITS);
	__type(key, u32);
	__type(value, struct wait);
} waits SEC(".maps");

/* Nanoseconds that recorded threads waited, by slot, those that wait still apart. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, u32);
	__type(value, u64);
} blocked SEC(".maps");

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 key = next->pid & (WAITS - 1), slot = 0;
	struct wait *wait;
	u64 *sum;

	if (watching && !*(volatile u32 *)&starts.active)
		return 0;
	wait = bpf_map_lookup_elem(&waits, &key);
	if (wait && wait->thread == next->pid && wait->thread) {
		slot = wait->slot;
		sum = bpf_map_lookup_elem(&blocked, &slot);
		/*
		 * What has ended while this thread waited is told no more; its slot may be another's by now.
		 */
		if (sum && (!watching || (start_of(next->tgid) && (start_of(next->tgid) & (SLOTS - 1)) == slot)))
			*sum += bpf_ktime_get_ns() - wait->since_ns;
		wait->thread = 0;
	}
	/* A thread that was preempted on its way into the wait is in it when it runs again. */
	if (preempt || !BPF_CORE_READ_BITFIELD(prev, in_iowait) || !wanted(prev->tgid))
		return 0;
	/*
	 * What is written behind everybody's back, and what waits outside of the recorder's container, no
	 * start waits for.
	 */
	if (prev->flags & PF_KTHREAD || !number_of(prev))
		return 0;
	key = prev->pid & (WAITS - 1);
	wait = bpf_map_lookup_elem(&waits, &key);
	if (wait) {
		wait->since_ns = bpf_ktime_get_ns();
		wait->thread = prev->pid;
		wait->slot = watching ? start_of(prev->tgid) & (SLOTS - 1) : 0;
	}
	return 0;
}

#endif
