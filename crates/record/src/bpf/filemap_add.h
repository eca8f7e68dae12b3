// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Everywhere: what enters the cache. Metadata, and where nothing better is known, files. */
#ifndef FILEMAP_ADD_H
#define FILEMAP_ADD_H

static __always_inline int added(const struct address_space *mapping, u64 index, const void *folio, bool is_folio)
{
	const struct inode *inode;
	struct record_metadata *r;
	u32 pages;

	pages = is_folio ? folio_pages(folio) : 1;
	if (!current_is_wanted())
		return read_by_kernel(mapping, index, index + pages - 1);
	inode = mapping->host;
	if (inode->i_sb->s_magic != BDEVFS_MAGIC) {
		if (!config.adds_are_uses)
			return 0;
		return plain_use(mapping, index, index + pages - 1, USE_ADD, NULL);
	}
	r = is_kept_free(ring) ? NULL : bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count(&lost);
		return 0;
	}
	head(&r->head, RECORD_METADATA, 0, current_number());
	r->start = index;
	r->dev = inode->i_rdev;
	r->pages = pages;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* 5.16 and later. */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(add_folio, struct folio *folio)
{
	return added(untrusted(folio, folio)->mapping, folio->index, folio, true);
}

/* Up to 5.15. */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(add_page, struct page *page)
{
	return added(page->mapping, page->index, page, false);
}

#endif
