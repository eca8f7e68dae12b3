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
#define CALL(native, other, a, b, c, d) (compat ? call32(other, (long)(a), (long)(b), (long)(c), (long)(d)) : syscall(native, a, b, c, d))

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
	return 0;
}
