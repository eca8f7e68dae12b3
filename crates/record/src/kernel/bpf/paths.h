// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The path of a file within its file system, by walking up from its dentry. */
#ifndef PATHS_H
#define PATHS_H

/* A path that fits PATH_MAX has no more names: each takes a byte and a slash. */
#define DEPTH 2048

#define NFS_SUPER_MAGIC 0x6969

/*
 * Mounts of NFS share super blocks, may each begin at another directory, and all call that "/" in mountinfo
 * (nfs_show_path). The super block's own root is in no path (fs/nfs/getroot.c).
 */
static __always_inline bool is_on_nfs(const struct super_block *sb)
{
	return BPF_CORE_READ(sb, s_magic) == NFS_SUPER_MAGIC;
}

/*
 * A walk from a dentry up to the root of its file system, or, on NFS, of its mount; the names are written to
 * bytes + end.
 */
struct walk {
	struct scratch *s;
	const struct dentry *dentry, *top;
	u32 end;
	bool at_top;
};

/* Takes one step. Returns whether that was the last. */
static long step(u32 i, struct walk *w)
{
	const struct dentry *dentry = w->dentry, *parent = BPF_CORE_READ(dentry, d_parent);
	long n;

	if (dentry == w->top) {
		w->at_top = true;
		return 1;
	}
	if (parent == dentry || w->end > sizeof(w->s->bytes) - NAME)
		return 1;
	n = bpf_probe_read_kernel_str(w->s->bytes + w->end, NAME, BPF_CORE_READ(dentry, d_name.name));
	if (n <= 0 || n > NAME)
		return 1;
	w->end += n;
	w->dentry = parent;
	return 0;
}

#define WHOLE (1U << 31)

static __always_inline u32 walked(const struct walk *w, u32 at)
{
	return (w->end - at) | (w->at_top ? WHOLE : 0);
}

/*
 * Returns the length of the names, and in the topmost bit whether they reach the root. The verifier follows
 * every turn of a plain loop, which takes it milliseconds; 5.17 brought one it need not. Older kernels refuse
 * programs that mention it even where they never run it, so there are two objects.
 */
#ifdef HAVE_BPF_LOOP
static __noinline u32 walk(struct scratch *s, u32 at, u64 from, u64 top)
{
	struct walk w = { .s = s, .dentry = (const void *)from, .top = (const void *)top, .end = at };

	bpf_loop(DEPTH, step, &w, 0);
	return walked(&w, at);
}
#else
/* So many turns are checked once, as a function of its own, and so often it is called. */
#define TURNS 128

/*
 * Goes on with the walk that a scratch has. Returns whether it has come to its end. By numbers: see
 * send_file.
 */
__noinline int walk_on(u32 which)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &which);
	struct walk w = {};
	int done = 0;

	if (!s)
		return 1;
	w.s = s;
	w.dentry = (const void *)s->dentry;
	w.top = (const void *)s->top;
	w.end = s->end;
	for (int i = 0; i < TURNS && !done; i++)
		done = step(i, &w);
	s->dentry = (u64)w.dentry;
	s->end = w.end;
	s->at_top = w.at_top;
	return done;
}

static __noinline u32 walk(struct scratch *s, u32 at, u64 from, u64 top)
{
	struct walk w = {};

	s->dentry = from;
	s->top = top;
	s->end = at;
	s->at_top = 0;
	for (int i = 0; i < DEPTH / TURNS && !walk_on(s->which); i++)
		;
	w.end = s->end;
	w.at_top = s->at_top;
	return walked(&w, at);
}
#endif

static __always_inline u32 place(struct place *place, struct scratch *s, u32 at, u64 dentry, u64 mnt)
{
	const struct super_block *sb = BPF_CORE_READ((const struct dentry *)dentry, d_sb);
	u64 top = (u64)BPF_CORE_READ(sb, s_root);
	u32 walked;

	if (mnt && is_on_nfs(sb))
		top = (u64)BPF_CORE_READ((const struct vfsmount *)mnt, mnt_root);
	walked = walk(s, at, dentry, top);
	place->dev = BPF_CORE_READ(sb, s_dev);
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
