/*
 * Says how much the kernel maps around a fault, then maps a file and touches its sixth page and every
 * sixteenth from there, by
 *    which each window of 64 KiB has one. Waits to be killed if there is a second word.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
	char said[32];
	int knob = open("/sys/kernel/debug/fault_around_bytes", O_RDONLY), file;
	ssize_t length = read(knob, said, sizeof(said));
	struct stat found;
	volatile const char *bytes;
	long sum = 0;

	if (length <= 0 || count < 2 || (file = open(words[1], O_RDONLY)) < 0 || fstat(file, &found))
		return 1;
	bytes = mmap(0, found.st_size, PROT_READ, MAP_SHARED, file, 0);
	if (bytes == MAP_FAILED)
		return 2;
	for (off_t at = 5 * 4096; at < found.st_size; at += 16 * 4096)
		sum += bytes[at];
	printf("%ld %.*s", sum, (int)length, said);
	fflush(stdout);
	if (count > 2)
		pause();
	return 0;
}
