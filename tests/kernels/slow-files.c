/*
 * A file system of which a test says how slow it is, or that it answers no more: it shows a directory, read-only, by FUSE's protocol, which
 * it speaks by hand. slow-files SOURCE POINT CONTROL USER: mounts it as USER's, and serves it until it is unmounted. CONTROL holds three
 * numbers: microseconds of each answer, bytes a second of each read (0: at once), and 1 where nothing is answered; and, if it likes, a
 * fourth: bytes a second of the link that all reads share (0: no limit). Each request is a line of CONTROL.log, without the time it took.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A power of two: paths lie where their hash says, or behind that. */
#define NODES (1 << 18)
#define THREADS 32
#define SECONDS 3600
#define MOST (1 << 17)
#define NUMBERS 4

static char *paths[NODES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double link_is_free;
static const char *control;
static int device, told;

static void waits(long *numbers)
{
	FILE *file = fopen(control, "r");

	memset(numbers, 0, NUMBERS * sizeof(*numbers));
	if (file) {
		if (fscanf(file, "%ld %ld %ld %ld", numbers, numbers + 1, numbers + 2, numbers + 3) < 3)
			numbers[2] = 0;
		fclose(file);
	}
}

/* The number of a path, which keeps it: from 2 on, for the root has 1. 0 where there are too many. */
static unsigned long node_of(const char *path)
{
	unsigned long node = 5381, tried;

	for (const char *c = path; *c; c++)
		node = node * 33 + (unsigned char)*c;
	pthread_mutex_lock(&lock);
	for (tried = 0; tried < NODES; tried++, node++) {
		node %= NODES;
		if (node > 1 && (!paths[node] || !strcmp(paths[node], path)))
			break;
	}
	if (tried == NODES)
		node = 0;
	else if (!paths[node])
		paths[node] = strdup(path);
	pthread_mutex_unlock(&lock);
	return node;
}

static const char *path_of(unsigned long node)
{
	return node < NODES && paths[node] ? paths[node] : "";
}

/* Waits until so many bytes have passed a link that all share. */
static void pass(long bytes, long a_second)
{
	struct timespec now;
	double at, wait;

	clock_gettime(CLOCK_MONOTONIC, &now);
	at = now.tv_sec + now.tv_nsec / 1e9;
	pthread_mutex_lock(&lock);
	if (link_is_free < at)
		link_is_free = at;
	link_is_free += (double)bytes / a_second;
	wait = link_is_free - at;
	pthread_mutex_unlock(&lock);
	usleep((useconds_t)(wait * 1e6));
}

static int attributes(const char *path, struct fuse_attr *attr)
{
	struct stat s;

	if (lstat(path, &s))
		return -errno;
	memset(attr, 0, sizeof(*attr));
	attr->ino = s.st_ino;
	attr->size = s.st_size;
	attr->blocks = s.st_blocks;
	attr->mtime = attr->ctime = attr->atime = s.st_mtim.tv_sec;
	attr->mtimensec = s.st_mtim.tv_nsec;
	attr->mode = s.st_mode;
	attr->nlink = 1;
	attr->blksize = 4096;
	return 0;
}

static int entries(const char *path, const struct fuse_read_in *in, char *out)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	unsigned long at = 0, size = 0;

	while (dir && (e = readdir(dir))) {
		struct fuse_dirent *d = (void *)(out + size);
		unsigned long length = strlen(e->d_name), whole = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);

		if (at++ < in->offset)
			continue;
		if (size + whole > in->size)
			break;
		memset(d, 0, whole);
		d->ino = e->d_ino;
		d->off = at;
		d->namelen = length;
		d->type = e->d_type;
		memcpy(d->name, e->d_name, length);
		size += whole;
	}
	if (dir)
		closedir(dir);
	return size;
}

/* Writes an answer to `out`: its length, or a negative error. */
static int answer(const struct fuse_in_header *h, const void *body, char *out, const long *numbers)
{
	const char *path = path_of(h->nodeid);
	char below[4096];
	int file, n;

	memset(out, 0, 256);
	switch (h->opcode) {
	case FUSE_INIT: {
		struct fuse_init_out *o = (void *)out;

		o->major = 7;
		o->minor = 31;
		o->max_readahead = MOST;
		o->flags = FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS;
		o->max_background = 64;
		o->congestion_threshold = 48;
		o->max_write = MOST;
		o->time_gran = 1;
		return sizeof(*o);
	}
	case FUSE_LOOKUP: {
		struct fuse_entry_out *o = (void *)out;

		snprintf(below, sizeof(below), "%s/%s", path, (const char *)body);
		o->entry_valid = o->attr_valid = SECONDS;
		/* Without a node it is an answer that may be kept, too. */
		if (!attributes(below, &o->attr))
			o->nodeid = node_of(below);
		return sizeof(*o);
	}
	case FUSE_GETATTR: {
		struct fuse_attr_out *o = (void *)out;

		o->attr_valid = SECONDS;
		n = attributes(path, &o->attr);
		return n ? n : (int)sizeof(*o);
	}
	case FUSE_READLINK:
		n = readlink(path, out, 4095);
		return n < 0 ? -errno : n;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		((struct fuse_open_out *)out)->open_flags = FOPEN_KEEP_CACHE;
		return sizeof(struct fuse_open_out);
	case FUSE_READDIR:
		return entries(path, body, out);
	case FUSE_READ: {
		const struct fuse_read_in *in = body;

		file = open(path, O_RDONLY);
		n = file < 0 ? -errno : (int)pread(file, out, in->size, in->offset);
		if (file >= 0)
			close(file);
		if (n > 0 && numbers[1])
			usleep((useconds_t)(n * 1000000.0 / numbers[1]));
		if (n > 0 && numbers[3])
			pass(n, numbers[3]);
		return n;
	}
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
	case FUSE_ACCESS:
		return 0;
	default:
		return -ENOSYS;
	}
}

static void note(const struct fuse_in_header *h, const void *body)
{
	char line[4200];
	const char *path = path_of(h->nodeid);
	int n = 0;

	if (h->opcode == FUSE_LOOKUP)
		n = snprintf(line, sizeof(line), "lookup %s/%s\n", path, (const char *)body);
	else if (h->opcode == FUSE_READ)
		n = snprintf(line, sizeof(line), "read %u %s\n", ((const struct fuse_read_in *)body)->size, path);
	else if (h->opcode == FUSE_OPEN)
		n = snprintf(line, sizeof(line), "open %s\n", path);
	else if (h->opcode == FUSE_READDIR || h->opcode == FUSE_GETATTR)
		n = snprintf(line, sizeof(line), "other %s\n", path);
	if (n > 0 && write(told, line, n) < 0)
		perror("log");
}

static void *serve(void *unused)
{
	char *in = malloc(MOST + 4096), *out = malloc(MOST + 4096);

	for (;;) {
		struct fuse_in_header *h = (void *)in;
		struct fuse_out_header *o = (void *)out;
		long numbers[NUMBERS];
		int n = read(device, in, MOST + 4096);

		if (n < 0 && errno == ENODEV)
			return unused;
		if (n < (int)sizeof(*h) || h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET || h->opcode == FUSE_INTERRUPT)
			continue;
		in[n] = 0;
		note(h, in + sizeof(*h));
		waits(numbers);
		while (numbers[2] && h->opcode != FUSE_INIT) {
			usleep(10000);
			waits(numbers);
		}
		if (h->opcode != FUSE_INIT && h->opcode != FUSE_RELEASE && h->opcode != FUSE_RELEASEDIR)
			usleep(numbers[0]);
		n = answer(h, in + sizeof(*h), out + sizeof(*o), numbers);
		o->unique = h->unique;
		o->error = n < 0 ? n : 0;
		o->len = sizeof(*o) + (n < 0 ? 0 : n);
		if (write(device, out, o->len) < 0 && errno != ENOENT)
			perror("answer");
	}
}

int main(int count, char **words)
{
	char text[4200];
	pthread_t thread;

	if (count != 5) {
		fputs("slow-files SOURCE POINT CONTROL USER\n", stderr);
		return 2;
	}
	paths[1] = words[1];
	control = words[3];
	snprintf(text, sizeof(text), "%s.log", control);
	told = open(text, O_WRONLY | O_CREAT | O_APPEND, 0600);
	device = open("/dev/fuse", O_RDWR);
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=%s,group_id=0,allow_other", device, words[4]);
	if (device < 0 || mount("slow", words[2], "fuse.slow", MS_NOSUID | MS_NODEV, text)) {
		perror(words[2]);
		return 1;
	}
	if (daemon(1, 1))
		return 1;
	for (int n = 1; n < THREADS; n++)
		pthread_create(&thread, NULL, serve, NULL);
	serve(NULL);
	return 0;
}
