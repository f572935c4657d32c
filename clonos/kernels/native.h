/* What the files of the extension share: buffers of callers, unaligned loads and stores, the mix of hashes.
 *
 * Every buffer comes from Python: its length is compared with the others', and each slot, offset and place in it with the
 * bounds of what it addresses, before it is used. Memory of callers may be at any address, so words are copied. The GIL is
 * held throughout, because a batch takes less than 0.1 ms and an index has no lock. */

#ifndef CLONOS_NATIVE_H
#define CLONOS_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 64 /* keys whose places are fetched together, so that misses of the cache overlap */
#define FIRST_SLOTS 64

#if defined(__GNUC__) || defined(__clang__)
#define FETCH(address) __builtin_prefetch(address)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#else
#define FETCH(address) ((void)(address))
#define LIKELY(condition) (condition)
#endif

static inline uint32_t load_u32(const char *from) { uint32_t word; memcpy(&word, from, 4); return word; }
static inline uint64_t load_u64(const char *from) { uint64_t word; memcpy(&word, from, 8); return word; }
static inline int64_t load_i64(const char *from, int64_t index) { int64_t word; memcpy(&word, from + 8 * index, 8); return word; }
static inline int32_t load_i32(const char *from, int64_t index) { int32_t word; memcpy(&word, from + 4 * index, 4); return word; }
static inline void store_i64(char *to, int64_t index, int64_t word) { memcpy(to + 8 * index, &word, 8); }
static inline void store_i32(char *to, int64_t index, int32_t word) { memcpy(to + 4 * index, &word, 4); }

/* Multiplies and folds, so that every bit of the word changes about half of the low bits. */
static inline uint64_t mix(uint64_t word)
{
    word ^= word >> 32;
    word *= 0x9E3779B97F4A7C15u;
    word ^= word >> 29;
    word *= 0xBF58476D1CE4E5B9u;
    return word ^ (word >> 32);
}

/* A buffer of items of one size. */
typedef struct {
    Py_buffer view;
    char *data;
    int64_t items;
} Items;

/* Takes the buffer of an object; returns 0, or -1 with an exception. */
int take_items(PyObject *object, int64_t item_bytes, int is_written, const char *name, Items *items);
static inline void release_items(Items *items) { PyBuffer_Release(&items->view); }

/* Returns 0 if both have the same number of items, or -1 with an exception. */
int check_equal(int64_t items, int64_t wanted, const char *name);

/* Returns the size of a table with at most two thirds of its places taken by `count` keys. */
static inline uint64_t table_size(int64_t count)
{
    uint64_t size = 2 * FIRST_SLOTS;
    while (size * 2 < (uint64_t)count * 3) size *= 2;
    return size;
}

/* Returns for how many keys a new index has room, if `room` are expected. */
static inline int64_t first_capacity(int64_t room, int64_t slots_max)
{
    if (room > slots_max) room = slots_max;
    return room < FIRST_SLOTS ? FIRST_SLOTS : room;
}

/* Returns the key group of a Python object that is an int of 64 bits or a short text in ASCII, -1 for others. */
int32_t group_of_object(PyObject *object, uint64_t width);

void *too_many_keys(int64_t slots_max);

extern PyType_Spec int64_index_spec, bytes_index_spec;
extern PyMethodDef gather_methods[], gather_parts_methods[], key_groups_methods[], ranks_methods[], texts_methods[];
extern PyMethodDef cells_methods[], records_methods[], rows_methods[], running_methods[], timed_runs_methods[];

#endif
