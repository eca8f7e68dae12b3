// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Which address a thread faulted at last. */
#ifndef PAGE_FAULT_H
#define PAGE_FAULT_H

/*
 * The kernel maps up to 16 pages around a fault, those of its address's aligned window, and tells of the
 * window alone. Which page was touched follows from the fault's address, of which another event has told,
 * before the thread perhaps waited for the page and woke up on another processor. Direct-mapped by thread and
 * lossy: a collision makes the page unknown.
 */
#define FAULTS (1 << 12)

struct fault {
	u64 thread;
	u64 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAULTS);
	__type(key, u32);
	__type(value, struct fault);
} faults SEC(".maps");

static __always_inline int faulted(u64 address)
{
	u64 thread = bpf_get_current_pid_tgid();
	u32 key = thread & (FAULTS - 1);
	struct fault *fault;

	if (watching && !*(volatile u32 *)&starts.active)
		return 0;
	fault = bpf_map_lookup_elem(&faults, &key);
	if (fault) {
		fault->thread = thread;
		fault->address = address;
	}
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address)
{
	return faulted(address);
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(page_fault_kernel, unsigned long address)
{
	return faulted(address);
}

#endif
