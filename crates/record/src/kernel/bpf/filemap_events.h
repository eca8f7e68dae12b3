// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Pages used, from 6.12 on: the kernel says what is asked for. */
#ifndef FILEMAP_EVENTS_H
#define FILEMAP_EVENTS_H

/*
 * The event tells all that is asked for, and so much at most is given at a time (PAGEVEC_SIZE folios of
 * MAX_PAGECACHE_ORDER): what follows has an event of its own. A read of two gigabytes that ends at its first
 * byte would be half a million pages, of which each is a bit to be set.
 */
static __always_inline u64 most_at_a_time(void)
{
	return 31ULL << (config.page_shift > 12 ? 13 : 9);
}

/*
 * The pages of the pipe that a splice goes through, twice. With as many more behind, what was sent is still
 * looked up (CHUNKS).
 */
#define SPLICED 32

/*
 * The page that a read begins with, of which the event may tell but the end: where a reader wakes up while
 * the pages that it waits for come in one by one, it takes those that are there and waits for the next, and
 * the kernel returns the former without an event (filemap_get_pages, where filemap_update_page says
 * AOP_TRUNCATED_PAGE; 6.12 to 6.18). The call goes on with the page waited for, so the last has an event;
 * where it began its arguments say. On an overlay they are those of the file below too.
 */
static __always_inline u64 read_begins(u64 index)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(task);
	u32 abi = syscall_abi(regs), how = syscall_meaning(syscall_number(regs), abi), kind = how & LOOKUP_KIND;
	u64 start, most = kind == READ_SPLICED ? SPLICED : most_at_a_time();

	if (kind < READ_COUNTED || !asks_for(task, regs, abi, how, index, &start))
		return index;
	return index - start > most ? index - most : start;
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(get_pages, struct address_space *mapping, unsigned long index, unsigned long last_index)
{
	if (!current_is_wanted())
		return read_by_kernel(mapping, index, last_index);
	if (last_index - index >= most_at_a_time())
		last_index = index + most_at_a_time() - 1;
	return plain_use(mapping, index ? read_begins(index) : 0, last_index, USE_READ, NULL);
}

#ifdef HAVE_BPF_LOOP
#define FIRST 0
#define LAST 1

/*
 * From Linux 6.18 on the kernel maps a folio whole of which it maps a page (finish_fault, filemap_map_pages):
 * the first or the last page of the one that is in memory at a page of a mapping, of which the pages are
 * below `head`, or that page. By numbers: see send_file.
 */
__noinline u64 folio_edge(u64 head, u64 index, u32 edge)
{
	const struct folio___618 *f618 = NULL;
	u64 folio, start, pages;

	if (!bpf_core_field_exists(f618->flags.f))
		return index;
	folio = entry_at(head, index);
	if (!folio || folio & 3)
		return index;
	start = BPF_CORE_READ((const struct folio *)folio, index);
	pages = folio_pages((const void *)folio);
	/* By now it may be another. */
	if (index - start >= pages)
		return index;
	return edge == FIRST ? start : start + pages - 1;
}

struct find {
	u64 mapping;
	u64 address;
	struct touch found;
};

static long found_vma(struct task_struct *task, struct vm_area_struct *vma, struct find *f)
{
	if ((u64)BPF_CORE_READ(vma, vm_file, f_mapping) == f->mapping)
		touch_in(&f->found, f->address, vma);
	return 0;
}

#define UNKNOWN (~0ULL)

/*
 * These pages of a mapping were mapped by a fault, of which one was touched, with the folios that they are
 * in. Where that is unknown the thread's last fault tells. The kernel touches memory for others without one:
 * then the thread's last fault is another, most often of other memory; if not, what it says is true all the
 * same.
 */
static __always_inline int fault_use(const struct address_space *mapping, u64 address, u64 first, u64 last, u64 touched)
{
	struct find f = { .mapping = address };
	u64 thread = bpf_get_current_pid_tgid();
	u32 key = thread & (FAULTS - 1);
	struct fault *fault;
	u64 head;

	if (!current_is_wanted())
		return 0;
	head = (u64)BPF_CORE_READ(mapping, i_pages.xa_head);
	first = folio_edge(head, first, FIRST);
	last = folio_edge(head, last, LAST);
	fault = bpf_map_lookup_elem(&faults, &key);
	if (fault && fault->thread == thread) {
		f.address = fault->address;
		bpf_find_vma(bpf_get_current_task_btf(), f.address, found_vma, &f, 0);
	}
	if (touched != UNKNOWN) {
		f.found.page = touched;
		f.found.known = 1;
	}
	return use(mapping, first, last, touched == UNKNOWN || last > first ? USE_MAP : USE_FAULT, &f.found, 0);
}

SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(map_pages, struct address_space *mapping, unsigned long start, unsigned long end)
{
	return fault_use(mapping, ctx[0], start, end, UNKNOWN);
}

/*
 * Of a fault around which nothing was mapped. What is not in memory yet is read, and then the fault is done
 * anew.
 */
SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(fault, struct address_space *mapping, unsigned long index)
{
	return fault_use(mapping, ctx[0], index, index, index);
}
#endif

#endif
