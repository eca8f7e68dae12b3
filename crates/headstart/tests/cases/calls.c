/*
 * Looks up, lists and reads what is in a directory; with a second argument by the calls of 32-bit programs
 * (int $0x80).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int compat;

static long call32(long number, long a, long b, long c, long d)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(0L)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)result;
}

/* By both numbers of a call. */
#define CALL(native, other, a, b, c, d) (compat ? call32(other, (long)(a), (long)(b), (long)(c), (long)(d)) : syscall(native, a, b, c, d, 0L))

enum { PATH, AT, SECOND };

/* Calls by both numbers, how they take a path, and whether they want a text besides. */
static const struct {
	long native, other;
	int how, text;
} calls[] = {
	{ SYS_mkdir, 39, PATH, 0 },	    { SYS_mkdirat, 296, AT, 0 },	   { SYS_mknod, 14, PATH, 0 },
	{ SYS_mknodat, 297, AT, 0 },	    { SYS_unlink, 10, PATH, 0 },	   { SYS_unlinkat, 301, AT, 0 },
	{ SYS_rmdir, 40, PATH, 0 },	    { SYS_getxattr, 229, PATH, 1 },	   { SYS_lgetxattr, 230, PATH, 1 },
	{ SYS_listxattr, 232, PATH, 0 },    { SYS_llistxattr, 233, PATH, 0 },	   { SYS_inotify_add_watch, 292, SECOND, 0 },
	{ SYS_statfs, 99, PATH, 0 },	    { SYS_truncate, 92, PATH, 0 },	   { SYS_name_to_handle_at, 341, AT, 0 },
	{ SYS_chmod, 15, PATH, 0 },	    { SYS_fchmodat, 306, AT, 0 },	   { SYS_chown, 212, PATH, 0 },
	{ SYS_lchown, 198, PATH, 0 },	    { SYS_fchownat, 298, AT, 0 },	   { SYS_utimensat, 320, AT, 0 },
};

/* Each on a name of its own that is not there. */
static void try_all(const char *below, char *path, char *text, long dir)
{
	long watches = CALL(SYS_inotify_init1, 332, 0, 0, 0, 0);

	strcpy(text, "user.text");
	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		char *second = calls[i].text ? text : 0;

		sprintf(path, calls[i].how == AT ? "%.0snone/%ld" : "%s/none/%ld", below, calls[i].native);
		if (calls[i].how == PATH)
			CALL(calls[i].native, calls[i].other, path, second, 0, 0);
		else
			CALL(calls[i].native, calls[i].other, calls[i].how == AT ? dir : watches, path, calls[i].how == SECOND ? 0x100 : 0, 0);
	}
}

int main(int count, char **words)
{
	/* Below 4 GiB, where a 32-bit call can point to. */
	char *path = mmap(0, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0), *out = path + 8192;

	compat = count > 2;
	if (count > 3) {
		strcpy(path, "/not-a-path");
		return CALL(SYS_write, 4, -1, path, 11, 0) >= 0;
	}
	strcpy(path, words[1]);
	long dir = CALL(SYS_openat, 295, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return 1;
	while (CALL(SYS_getdents64, 220, dir, out, 65536, 0) > 0)
		;
	for (int i = 0; i < 1600; i++) {
		sprintf(path, "%s/%d", words[1], i);
		CALL(SYS_stat, 195, path, out, 0, 0);
		if (i % 10 == 0) {
			CALL(SYS_access, 33, path, R_OK, 0, 0);
			CALL(SYS_readlink, 85, path, out, 4096, 0);
			/* Relative to the directory. */
			sprintf(path, "%d", i);
			CALL(SYS_faccessat, 307, dir, path, R_OK, 0);
		}
		if (i % 5 == 0) {
			sprintf(path, "%s/%d", words[1], i);
			long fd = CALL(SYS_open, 5, path, O_RDONLY, 0, 0);
			if (fd >= 0) {
				CALL(SYS_read, 3, fd, out, 65536, 0);
				CALL(SYS_close, 6, fd, 0, 0, 0);
			}
		}
	}
	try_all(words[1], path, out, dir);
	return 0;
}
