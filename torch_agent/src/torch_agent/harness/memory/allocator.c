/* The memory of a virtual GPU: what torch allocates for CPU tensors, with a limit (AntMan, OSDI'20, section 3.1.1).

   Preloaded into the processes of a task, it does nothing until the harness begins. From then on the blocks of 64 KB and
   more that are asked for by posix_memalign, which is how torch allocates CPU tensors, lie in one range of addresses:

     DEVICE   private memory                       CACHED   the same, freed, kept for the next tensor of that size
     HOST     a file in memory, beyond the limit   EMPTY    addresses without memory

   A block never changes its address: it moves by having other pages put beneath it. Blocks of 2 MB and more have huge
   pages, where the kernel gives any: small ones cost more to get and to give back than to be copied. Moving is done by
   the training thread at the boundary of two mini-batches, and to blocks that were there at the boundary before. What
   another thread writes there in this very moment would be lost: so blocks that such a thread has allocated stay where
   they are for longer, and what it has been filling is ready; they come home in small pages, by which nothing is lost.
   Threads that write, at boundaries, to tensors which the training thread has made long ago are not provided for.
   All else of the process is for libc, or for the library that another preload has put in its place. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIT ((size_t)16384) /* of sizes and addresses */
#define SMALLEST ((size_t)65536)
#define SMALLEST_PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20) /* of most processors; blocks of this size and more begin at a multiple of it */
#define HUGE_UNITS (HUGE_PAGE / UNIT)
#define BINS 4096 /* free blocks by their units; the last bin has all larger ones */
#define UNLIMITED UINT64_MAX
#define SETTLED 32 /* mini-batches after which a block of another thread than the training one may move */
#define KEPT 8 /* mini-batches for which a block stays cached that nothing takes */

#ifndef MADV_POPULATE_WRITE /* headers older than the kernel */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum state { EMPTY, CACHED, DEVICE, HOST };
struct block {
    uint32_t units, next; /* the next one in its bin */
    uint32_t born;        /* the mini-batch in which it was allocated; of a cached one, in which it was freed */
    uint8_t state;
    bool foreign; /* allocated by another thread than the one that trained then */
};
struct usage { /* bytes; preloaded.py reads the same */
    uint64_t device, cached, host, most_on_host, most_in_use;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *base;
static size_t span;          /* of the range; 0: not begun */
static struct block *blocks; /* by the number of their first unit; number 0 stands for none */
static uint32_t top = 1, minibatch, bins[2][BINS];
static struct usage now;
static uint64_t limit = UNLIMITED, capacity = UNLIMITED;
static int file = -1;
static pthread_t trainer; /* the thread that was at a boundary last, or began */

static void (*next_free)(void *);
static void *(*next_realloc)(void *, size_t);
static int (*next_memalign)(void **, size_t, size_t);
static size_t (*next_usable)(void *);

__attribute__((constructor)) static void find_next(void) {
    next_realloc = dlsym(RTLD_NEXT, "realloc");
    next_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    next_usable = dlsym(RTLD_NEXT, "malloc_usable_size");
    next_free = dlsym(RTLD_NEXT, "free");
}

static char *address(uint32_t b) { return base + b * UNIT; }
static size_t size_of(uint32_t b) { return blocks[b].units * UNIT; }
static uint32_t block_at(const void *p) { return (uint32_t)((size_t)((const char *)p - base) / UNIT); }
static bool ours(const void *p) {
    return (size_t)((const char *)p - base) < __atomic_load_n(&span, __ATOMIC_ACQUIRE);
}

static void note_peaks(void) {
    uint64_t in_use = now.device - now.cached + now.host;
    if (now.host > now.most_on_host) now.most_on_host = now.host;
    if (in_use > now.most_in_use) now.most_in_use = in_use;
}

/* Free blocks */

static uint32_t bin_of(size_t units) { return units < BINS ? units : BINS - 1; }

static void put(uint32_t b, enum state state) {
    uint32_t *bin = &bins[state][bin_of(blocks[b].units)];
    blocks[b].state = state, blocks[b].next = *bin, *bin = b;
}

static uint32_t take(enum state state, size_t units, size_t most_units) {
    for (size_t bin = bin_of(units); bin <= bin_of(most_units); bin++)
        for (uint32_t *p = &bins[state][bin]; *p; p = &blocks[*p].next)
            if (blocks[*p].units >= units && blocks[*p].units <= most_units) {
                uint32_t b = *p;
                *p = blocks[b].next;
                return b;
            }
    return 0;
}

static uint32_t addresses(size_t units) {
    uint32_t b = take(EMPTY, units, units + units / 8);
    uint32_t gap = units < HUGE_UNITS ? 0 : -top % HUGE_UNITS;
    if (b || top + gap + units > span / UNIT) return b;
    if (gap) blocks[top].units = gap, put(top, EMPTY), top += gap;
    b = top, top += units;
    blocks[b].units = units;
    return b;
}

/* What lies beneath them */

static void punch(char *at, size_t size) {
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at - base, size);
}

static bool drop(uint32_t b) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(address(b), size_of(b), PROT_NONE, flags, -1, 0) == MAP_FAILED) return false;
    if (blocks[b].state == HOST) punch(address(b), size_of(b));
    return true;
}

/* Drop cached blocks until no more than so many bytes are on the device, the largest ones first. */
static void trim(uint64_t most) {
    for (size_t bin = BINS; bin-- > 0;)
        for (uint32_t b; now.device > most && (b = bins[CACHED][bin]) && drop(b);) {
            bins[CACHED][bin] = blocks[b].next;
            now.device -= size_of(b), now.cached -= size_of(b);
            put(b, EMPTY);
        }
}

/* Drop cached blocks that no mini-batch has taken lately: tensors of sizes that do not come back. */
static void drop_unused(void) {
    for (size_t bin = 0; now.cached && bin < BINS; bin++)
        for (uint32_t *p = &bins[CACHED][bin], b; (b = *p);) {
            if (minibatch - blocks[b].born < KEPT || !drop(b)) {
                p = &blocks[b].next;
                continue;
            }
            *p = blocks[b].next;
            now.device -= size_of(b), now.cached -= size_of(b);
            put(b, EMPTY);
        }
}

/* Whether so many bytes more are within the limit; what is cached makes room. */
static bool fits(size_t size) {
    if (limit == UNLIMITED) {
        if (now.device + size > capacity) trim(capacity > size ? capacity - size : 0);
        return true;
    }
    if (now.device - now.cached + size > limit) return false;
    trim(limit - size);
    return now.device + size <= limit;
}

static bool have_file(void) {
    if (file < 0) file = memfd_create("sanjaya-host", MFD_CLOEXEC);
    return file >= 0 && ftruncate(file, span) == 0;
}

static bool map_file(char *at, size_t size, int sharing) {
    return mmap(at, size, PROT_READ | PROT_WRITE, sharing | MAP_FIXED, file, at - base) != MAP_FAILED;
}

static bool begin_on_device(uint32_t b) {
    if (mprotect(address(b), size_of(b), PROT_READ | PROT_WRITE)) return false;
    if (blocks[b].units >= HUGE_UNITS) madvise(address(b), size_of(b), MADV_HUGEPAGE);
    now.device += size_of(b), blocks[b].state = DEVICE;
    return true;
}

static bool begin_on_host(uint32_t b) {
    if (!have_file() || !map_file(address(b), size_of(b), MAP_SHARED)) return false;
    now.host += size_of(b), blocks[b].state = HOST;
    return true;
}

/* memcpy is slower for such sizes where it is by `rep movsb`; the barrier keeps the compiler from calling it here. */
static void copy(char *to, const char *from, size_t size) {
    typedef char vector __attribute__((vector_size(16), may_alias));
    for (size_t at = 0; at < size; at += 4 * sizeof(vector)) {
        const vector *f = (const vector *)(from + at);
        vector *t = (vector *)(to + at), first = f[0], second = f[1], third = f[2], fourth = f[3];
        t[0] = first, t[1] = second, t[2] = third, t[3] = fourth;
        __asm__ volatile("" ::: "memory");
    }
}

/* Room for what comes in the place of a block: addresses, from the next multiple of a huge page on. */
static char *have_room(uint32_t b) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    return mmap(NULL, size_of(b) + HUGE_PAGE, PROT_NONE, flags, -1, 0);
}

static char *aligned(char *room) { return (char *)(((uintptr_t)room + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1)); }

/* Private pages in the place of the file's: the kernel copies each one when it is first written to, here all at once. So
   a page is written once and not cleared before, and what another thread reads or writes meanwhile stays right. */
static bool have_private_pages(char *at, size_t size) {
    if (!map_file(at, size, MAP_PRIVATE)) return false;
    if (madvise(at, size, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
    for (size_t done = 0; done < size; done += SMALLEST_PAGE) /* before Linux 5.14 */
        __atomic_fetch_or(at + done, 0, __ATOMIC_RELAXED);
    return true;
}

/* Move the beginning of a block to huge pages of the file, as far as there are any. The kernel makes them where a small
   page is, also if it gives none to files by itself (since Linux 6.1). One at a time: the next one is made of memory that
   the last one has left, which the processor still has in its cache. Returns the bytes that have moved. */
static size_t move_out_huge_pages(uint32_t b) {
    size_t done = 0, size = size_of(b) / HUGE_PAGE * HUGE_PAGE;
    if (!size) return 0;
    char *room = have_room(b), *pages = aligned(room), *at = address(b);
    if (room == MAP_FAILED) return 0;
    int flags = MAP_SHARED | MAP_FIXED;
    bool mapped = mmap(pages, size, PROT_READ | PROT_WRITE, flags, file, at - base) != MAP_FAILED;
    for (; mapped && done < size; done += HUGE_PAGE) {
        if (pwrite(file, "", 1, at + done - base) != 1 || madvise(pages + done, HUGE_PAGE, MADV_COLLAPSE)) break;
        copy(pages + done, at + done, HUGE_PAGE);
        if (!map_file(at + done, HUGE_PAGE, MAP_SHARED)) break;
    }
    munmap(room, size_of(b) + HUGE_PAGE);
    return done;
}

static bool move_out(uint32_t b) {
    if (!have_file()) return false;
    size_t moved = move_out_huge_pages(b), size = size_of(b);
    char *at = address(b);
    for (size_t done = moved; done < size;) {
        ssize_t n = pwrite(file, at + done, size - done, at + done - base);
        if (n <= 0) break; /* the host is full */
        done += n;
        if (done == size && map_file(at + moved, size - moved, MAP_SHARED)) moved = size;
    }
    if (moved < size) {
        if (!moved || have_private_pages(at, moved)) punch(at, size);
        return false;
    }
    now.device -= size, now.host += size, blocks[b].state = HOST;
    return true;
}

/* Move the end of a block to private huge pages, which the kernel does not make of a file's: the copy of one takes its
   place as a whole. Returns how many bytes of the beginning have not moved. */
static size_t move_in_huge_pages(uint32_t b) {
    size_t left = size_of(b), size = left;
    char *room = have_room(b), *pages = aligned(room), *at = address(b);
    if (room == MAP_FAILED) return left;
    if (mprotect(pages, size, PROT_READ | PROT_WRITE) == 0) {
        madvise(pages, size, MADV_HUGEPAGE);
        for (size_t next; left; left = next) {
            next = (left - 1) / HUGE_PAGE * HUGE_PAGE, size = left - next;
            copy(pages + next, at + next, size);
            if (mremap(pages + next, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at + next) == MAP_FAILED) break;
            punch(at + next, size);
        }
    }
    munmap(room, size_of(b) + HUGE_PAGE);
    return left;
}

/* `exact`: what another thread writes meanwhile is not lost. Without, a block may be copied. */
static bool move_in(uint32_t b, bool exact) {
    size_t size = size_of(b), left = exact || size < HUGE_PAGE ? size : move_in_huge_pages(b);
    if (left && have_private_pages(address(b), left)) {
        punch(address(b), left);
    } else if (left == size) {
        map_file(address(b), size, MAP_SHARED);
        return false;
    } /* else, without memory for the rest, the kernel copies that later, when it is written to */
    now.host -= size, now.device += size, blocks[b].state = DEVICE;
    return true;
}

/* Tensors come and go */

static uint32_t allocate(size_t size) {
    size_t units = (size + UNIT - 1) / UNIT;
    uint32_t b = take(CACHED, units, units + units / 8);
    if (b) {
        now.cached -= size_of(b), blocks[b].state = DEVICE;
    } else {
        if (!(b = addresses(units))) return 0;
        bool done = fits(size_of(b)) && begin_on_device(b);
        if (!done && limit == UNLIMITED) trim(0), done = begin_on_device(b); /* all of the device is in use */
        if (!done && limit != UNLIMITED) done = begin_on_host(b);
        if (!done) return put(b, EMPTY), 0;
    }
    blocks[b].born = minibatch, blocks[b].foreign = !pthread_equal(trainer, pthread_self());
    note_peaks();
    return b;
}

static void give_up(uint32_t b) {
    if (blocks[b].state == DEVICE && now.device <= limit) {
        now.cached += size_of(b), blocks[b].born = minibatch;
        put(b, CACHED);
    } else if (drop(b)) { /* above the limit nothing is cached: tensors that come and go would never move */
        *(blocks[b].state == DEVICE ? &now.device : &now.host) -= size_of(b);
        put(b, EMPTY);
    }
}

int posix_memalign(void **found, size_t alignment, size_t size) {
    if (!next_memalign) find_next(); /* another library's constructor was first */
    if (size < SMALLEST || alignment > UNIT || size / UNIT >= UINT32_MAX / 2 || !ours(base))
        return next_memalign ? next_memalign(found, alignment, size) : ENOMEM;
    pthread_mutex_lock(&lock);
    uint32_t b = allocate(size);
    pthread_mutex_unlock(&lock);
    if (!b) return next_memalign(found, alignment, size); /* it finds room elsewhere, or says that there is none */
    *found = address(b);
    return 0;
}

void free(void *p) {
    if (!ours(p)) {
        if (next_free) next_free(p); /* else within dlsym above: a few bytes are lost */
        return;
    }
    int before = errno;
    pthread_mutex_lock(&lock);
    give_up(block_at(p));
    pthread_mutex_unlock(&lock);
    errno = before;
}

size_t malloc_usable_size(void *p) {
    if (!next_usable) find_next();
    return ours(p) ? size_of(block_at(p)) : next_usable(p);
}

void *realloc(void *p, size_t size) {
    if (!next_realloc) find_next();
    if (!ours(p)) return next_realloc ? next_realloc(p, size) : NULL;
    void *moved = size ? malloc(size) : NULL;
    if (moved) memcpy(moved, p, size < size_of(block_at(p)) ? size : size_of(block_at(p)));
    if (moved || !size) free(p);
    return moved;
}

/* A fork: parent and child must not write to one file. Everything is private memory when it happens; what has no room
   there the child has as it was, as long as the parent does not write to it. The child's limit is its own. */

static void before_fork(void) {
    pthread_mutex_lock(&lock);
    for (uint32_t b = 1; now.host && b < top; b += blocks[b].units)
        if (blocks[b].state == HOST) move_in(b, true);
}

static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {
    for (uint32_t b = 1; now.host && b < top; b += blocks[b].units)
        if (blocks[b].state == HOST && map_file(address(b), size_of(b), MAP_PRIVATE))
            now.host -= size_of(b), now.device += size_of(b), blocks[b].state = DEVICE;
    if (file >= 0) close(file);
    file = -1, limit = UNLIMITED;
    pthread_mutex_unlock(&lock);
}

/* What the harness calls */

/* Reserve so many bytes of addresses, for a device with so much memory. Returns 0, or errno. */
int sanjaya_memory_begin(uint64_t bytes, uint64_t device) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (span) return 0;
    if ((size_t)sysconf(_SC_PAGESIZE) > UNIT || bytes / UNIT >= UINT32_MAX / 2) return EINVAL;
    char *range = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, flags, -1, 0);
    if (range == MAP_FAILED) return errno;
    blocks = mmap(NULL, bytes / UNIT * sizeof(struct block), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (blocks == MAP_FAILED) return errno;
    base = aligned(range);
    capacity = device, trainer = pthread_self();
    pthread_atfork(before_fork, in_parent, in_child);
    __atomic_store_n(&span, bytes / UNIT * UNIT, __ATOMIC_RELEASE);
    return 0;
}

/* A mini-batch is over: keep to this limit from now on. Says where the memory is, and the peaks of the mini-batch. */
void sanjaya_memory_boundary(uint64_t most, struct usage *found) {
    pthread_mutex_lock(&lock);
    uint64_t most_on_host = now.most_on_host, most_in_use = now.most_in_use;
    limit = most, trainer = pthread_self();
    if (now.device > limit) trim(limit);
    for (uint32_t b = 1; (now.device > limit || now.host) && b < top; b += blocks[b].units) {
        if (minibatch - blocks[b].born < (blocks[b].foreign ? SETTLED : 1)) continue;
        if (blocks[b].state == DEVICE && now.device > limit && !move_out(b)) break;
        if (blocks[b].state == HOST && fits(size_of(b)) && !move_in(b, blocks[b].foreign)) break;
    }
    *found = now;
    found->most_on_host = most_on_host, found->most_in_use = most_in_use;
    now.most_on_host = now.most_in_use = 0;
    note_peaks();
    if (++minibatch % KEPT == 0) drop_unused();
    pthread_mutex_unlock(&lock);
}

/* Let go of all that is cached: the process leaves the device. */
void sanjaya_memory_trim(void) {
    pthread_mutex_lock(&lock);
    trim(0);
    pthread_mutex_unlock(&lock);
}
