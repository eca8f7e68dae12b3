/* Reads each file to its end, in the way that the first argument names, by a buffer of a megabyte. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MEGABYTE (1 << 20)
#define THREADS 4

static char *buffer;

static long by_uring(int fd)
{
	struct io_uring_params p = { 0 };
	int ring = syscall(SYS_io_uring_setup, 4, &p);
	char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, 3, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * 16, 3, MAP_SHARED, ring, IORING_OFF_CQ_RING);
	struct io_uring_sqe *sqes = mmap(0, p.sq_entries * 64, 3, MAP_SHARED, ring, IORING_OFF_SQES);
	struct io_uring_sqe *sqe = sqes;

	if (ring < 0)
		return -1;
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_READ;
	sqe->fd = fd;
	sqe->addr = (unsigned long)buffer;
	sqe->len = MEGABYTE;
	((unsigned *)(sq + p.sq_off.array))[0] = 0;
	__atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1)
		return -1;
	long result = ((struct io_uring_cqe *)(cq + p.cq_off.cqes))[0].res;
	close(ring);
	return result;
}

/* Threads that share a descriptor, and so its position. */
static void *reads(void *fd)
{
	char own[MEGABYTE];

	while (read((long)fd, own, sizeof(own)) > 0)
		;
	return 0;
}

static long by_threads(long fd)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, reads, (void *)fd);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	return lseek(fd, 0, SEEK_CUR);
}

static long spliced(int fd)
{
	int ends[2], null = open("/dev/null", O_WRONLY);
	long got, all = 0;

	pipe(ends);
	while ((got = splice(fd, 0, ends[1], 0, MEGABYTE, 0)) > 0) {
		all += got;
		while (got > 0)
			got -= splice(ends[0], 0, null, 0, got, 0);
	}
	return all;
}

static long mapped(int fd, long size)
{
	volatile char *start = mmap(0, size, PROT_READ, MAP_PRIVATE, fd, 0);
	long sum = 0;

	for (long at = 0; at < size; at += 4096)
		sum += start[at];
	return size;
}

int main(int count, char **words)
{
	int null = open("/dev/null", O_WRONLY);

	buffer = malloc(MEGABYTE);
	for (int i = 2; i < count; i++) {
		struct iovec whole = { buffer, MEGABYTE };
		int fd = open(words[i], O_RDONLY);
		struct stat stat;
		long got = -1;

		fstat(fd, &stat);
		if (!strcmp(words[1], "read"))
			got = read(fd, buffer, MEGABYTE);
		else if (!strcmp(words[1], "pread"))
			got = pread(fd, buffer, MEGABYTE, 0);
		else if (!strcmp(words[1], "readv"))
			got = readv(fd, &whole, 1);
		else if (!strcmp(words[1], "preadv"))
			got = preadv(fd, &whole, 1, 0);
		else if (!strcmp(words[1], "preadv2"))
			got = preadv2(fd, &whole, 1, -1, 0);
		else if (!strcmp(words[1], "sendfile"))
			got = sendfile(null, fd, 0, MEGABYTE);
		else if (!strcmp(words[1], "splice"))
			got = spliced(fd);
		else if (!strcmp(words[1], "uring"))
			got = by_uring(fd);
		else if (!strcmp(words[1], "threads"))
			got = by_threads(fd);
		else if (!strcmp(words[1], "mmap"))
			got = mapped(fd, stat.st_size);
		if (got != stat.st_size) {
			fprintf(stderr, "%s: %ld of %ld bytes by %s\n", words[i], got, (long)stat.st_size, words[1]);
			return 1;
		}
		close(fd);
	}
	return 0;
}
