/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What block devices are asked, by anybody: loaded only where activity is recorded. */
#ifndef BLOCK_RQ_H
#define BLOCK_RQ_H

/* Numbers of enum req_op, the same since 4.10. */
#define REQ_OP_BITS 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define REQ_OP_FLUSH 2
#define REQ_OP_DISCARD 3

#define NO_SECTOR (~0ULL)

struct asked {
	u64 issued_ns;
	u64 sector;
	u32 sectors;
	u32 dev;
	u32 process;
	u8 kind;
	u8 flags;
	u16 unused;
};

/* Requests that are not answered yet, by their address. Devices hold some hundreds. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct asked);
} in_flight SEC(".maps");

/*
 * Who gives a request to the driver: the recorded process that waits for it, as a rule, or a thread of the
 * kernel's.
 */
static __always_inline u32 asking_process(void)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	u32 tgid = current_tgid();

	if (!tgid || !wanted(tgid) || BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return 0;
	return current_number();
}

static __always_inline void send_request(const struct asked *asked)
{
	struct record_request *r = bpf_ringbuf_reserve(&activity, sizeof(*r), 0);

	if (!r) {
		count(&unseen);
		return;
	}
	head(&r->head, RECORD_REQUEST, asked->kind, asked->process);
	r->head.flags = asked->flags;
	r->issued_ns = asked->issued_ns;
	r->sector = asked->sector;
	r->sectors = asked->sectors;
	r->dev = asked->dev;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

/*
 * Whether a request that is issued anew is used for something else than before, so that the answer was not
 * seen: the kernel does not run a program that already runs on the processor. A request that a driver sends
 * back, as a whole or in part, is issued again for the same sectors.
 */
static __always_inline bool used_again(const struct asked *before, const struct asked *asked)
{
	return before->dev != asked->dev || asked->sector < before->sector ||
	       asked->sector >= before->sector + before->sectors;
}

static __always_inline int issued(const struct request *request)
{
	u64 key = (u64)request, sector = BPF_CORE_READ(request, __sector);
	u32 flags = BPF_CORE_READ(request, cmd_flags), op = flags & REQ_OP_BITS;
	const struct gendisk *disk = request_disk(request);
	struct asked asked = {}, *before;

	/* Commands to a driver have no disk at times. */
	if (stopped || !disk)
		return 0;
	asked.issued_ns = bpf_ktime_get_ns();
	asked.sector = sector == NO_SECTOR ? 0 : sector;
	asked.sectors = BPF_CORE_READ(request, __data_len) >> 9;
	asked.dev = BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
	asked.kind = op == REQ_OP_READ	    ? REQUEST_READ
		     : op == REQ_OP_WRITE   ? REQUEST_WRITE
		     : op == REQ_OP_FLUSH   ? REQUEST_FLUSH
		     : op == REQ_OP_DISCARD ? REQUEST_DISCARD
					    : REQUEST_OTHER;
	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_META))
		asked.flags |= REQUEST_METADATA;
	if (flags & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_RAHEAD))
		asked.flags |= REQUEST_AHEAD;
	asked.process = asking_process();
	before = bpf_map_lookup_elem(&in_flight, &key);
	if (before && used_again(before, &asked))
		send_request(before);
	if (bpf_map_update_elem(&in_flight, &key, &asked, BPF_ANY))
		count(&unseen);
	return 0;
}

/* 5.11 and later. */
SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_issue, struct request *request)
{
	return issued(request);
}

/* Up to 5.10. */
SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_issue_510, struct request_queue *queue, struct request *request)
{
	return issued(request);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_complete, struct request *request, int error, unsigned int bytes)
{
	u64 key = (u64)request;
	struct asked *asked = bpf_map_lookup_elem(&in_flight, &key);

	/* Some devices answer a request in parts. What is not answered in time user space reads. */
	if (!asked || stopped || BPF_CORE_READ(request, __data_len) > bytes)
		return 0;
	send_request(asked);
	bpf_map_delete_elem(&in_flight, &key);
	return 0;
}

#endif
