// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The path of a file within its file system, by walking up from its dentry. */
#ifndef PATHS_H
#define PATHS_H

/* Deeper paths than any that fits PATH_MAX are cut. */
#define DEPTH 128

/* A walk from a dentry up to the root of its file system; the names are written to bytes + end. */
struct walk {
	struct scratch *s;
	const struct dentry *dentry;
	u32 end;
	bool at_top;
};

/* Takes one step. Returns whether that was the last. */
static long step(u32 i, struct walk *w)
{
	const struct dentry *dentry = w->dentry, *parent = BPF_CORE_READ(dentry, d_parent);
	long n;

	if (parent == dentry) {
		w->at_top = true;
		return 1;
	}
	if (w->end > sizeof(w->s->bytes) - NAME)
		return 1;
	n = bpf_probe_read_kernel_str(w->s->bytes + w->end, NAME, BPF_CORE_READ(dentry, d_name.name));
	if (n <= 0 || n > NAME)
		return 1;
	w->end += n;
	w->dentry = parent;
	return 0;
}

/* Returns the length of the names, and in the topmost bit whether they reach the root. */
#define WHOLE (1U << 31)
static __noinline u32 walk(struct scratch *s, u32 at, u64 from)
{
	const struct dentry *dentry = (const void *)from;
	struct walk w = { .s = s, .dentry = dentry, .end = at };

	/*
	 * The verifier follows every turn of a plain loop, which takes it milliseconds; 5.17 brought one it need not.
	 * Older kernels refuse programs that mention it even where they never run it, so there are two objects.
	 */
#ifdef HAVE_BPF_LOOP
	bpf_loop(DEPTH, step, &w, 0);
#else
	for (int i = 0; i < DEPTH && !step(i, &w); i++)
		;
#endif
	return (w.end - at) | (w.at_top && w.dentry == BPF_CORE_READ(dentry, d_sb, s_root) ? WHOLE : 0);
}

static __always_inline u32 place(struct place *place, struct scratch *s, u32 at, u64 dentry, u64 mnt)
{
	u32 walked = walk(s, at, dentry);

	place->dev = BPF_CORE_READ((const struct dentry *)dentry, d_sb, s_dev);
	place->mount = 0;
	if (mnt) {
		const struct mount *m = (const void *)(mnt - bpf_core_field_offset(struct mount, mnt));

		place->mount = BPF_CORE_READ(m, mnt_id);
	}
	place->length = walked & ~WHOLE;
	place->whole = walked >> 31;
	return walked & ~WHOLE;
}

#endif
