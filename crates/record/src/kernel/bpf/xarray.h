// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the kernel keeps by number in a tree: processes, and the pages of a file that are in memory. */
#ifndef XARRAY_H
#define XARRAY_H

/* More levels than a tree of 2^48 numbers has. */
#define LEVELS 8

static __always_inline u64 slot_at(const struct xa_node *node, u64 at)
{
	u64 entry = 0;

	bpf_probe_read_kernel(&entry, sizeof(entry),
			      (const void *)node + bpf_core_field_offset(struct xa_node, slots) + at * sizeof(void *));
	return entry;
}

/*
 * What is there under a number, looked for as the kernel does (xas_load); what is marked by its lowest two
 * bits is no pointer.
 */
static __always_inline u64 entry_at(u64 entry, u64 number)
{
	u64 slots = bpf_core_field_size(((struct xa_node *)NULL)->slots) / sizeof(void *);

	for (int i = 0; i < LEVELS; i++) {
		const struct xa_node *node = (const void *)(entry - 2);
		u64 at;

		/* Inner nodes are marked by those two bits (xa_is_node), and begin behind the first page. */
		if ((entry & 3) != 2 || entry <= 4096)
			break;
		at = number >> BPF_CORE_READ(node, shift);
		/* Only the first may be asked for more than the tree has. */
		if (i == 0 && at >= slots)
			return 0;
		entry = slot_at(node, at & (slots - 1));
		/*
		 * What takes several slots is in the first of them, of which the others say where it is
		 * (xa_is_sibling).
		 */
		if ((entry & 3) == 2 && entry < slots << 2)
			entry = slot_at(node, entry >> 2 & (slots - 1));
	}
	return entry;
}

#endif
