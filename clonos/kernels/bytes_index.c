/* BytesIndex(slots_max, seed, room): open addressing with linear probing; a place holds 32 bits of the hash beside the slot, and
 * the keys lie one after the other in the order of their slots. */

#include "native.h"

typedef struct {
    uint32_t hash;
    int32_t slot; /* -1 if the place is free */
} Place;

typedef struct {
    PyObject_HEAD
    Place *table;
    uint64_t mask;
    char *data;
    int64_t *ends; /* ends[slot] and ends[slot + 1] are the bounds of its key in the data */
    int64_t count, capacity, data_capacity, slots_max;
    uint64_t seed;
} BytesIndex;

/* Keys of a batch: offsets of 4 or 8 bytes into data. */
typedef struct {
    Items offsets, data;
    int is_large;
    int64_t count;
} Keys;

static uint32_t hash_of(const char *key, int64_t size, uint64_t seed)
{
    uint64_t hash = seed ^ ((uint64_t)size * 0x9E3779B97F4A7C15u);
    if (size >= 8) {
        for (int64_t at = 0; at + 8 < size; at += 8) hash = mix(hash ^ load_u64(key + at));
        hash = mix(hash ^ load_u64(key + size - 8));
    } else if (size >= 4) {
        hash = mix(hash ^ (((uint64_t)load_u32(key) << 32) | load_u32(key + size - 4)));
    } else if (size > 0) {
        const unsigned char *bytes = (const unsigned char *)key;
        hash = mix(hash ^ ((uint64_t)bytes[0] << 16 | (uint64_t)bytes[size >> 1] << 8 | bytes[size - 1]));
    } else {
        hash = mix(hash);
    }
    return (uint32_t)(hash >> 16);
}

static inline int64_t offset_at(const Keys *keys, int64_t row)
{
    return keys->is_large ? load_i64(keys->offsets.data, row) : load_i32(keys->offsets.data, row);
}

/* Sets the bounds of a key in the data; returns 0, or -1 with an exception if they are not within it. */
static inline int bounds_of(const Keys *keys, int64_t row, int64_t *begin, int64_t *size)
{
    int64_t first = offset_at(keys, row), end = offset_at(keys, row + 1);
    if (!LIKELY(0 <= first && first <= end && end <= keys->data.items)) {
        PyErr_Format(PyExc_ValueError, "key %lld lies at %lld to %lld in %lld bytes", (long long)row, (long long)first,
                     (long long)end, (long long)keys->data.items);
        return -1;
    }
    *begin = first;
    *size = end - first;
    return 0;
}

static Place *new_table(uint64_t size)
{
    if (size > PY_SSIZE_T_MAX / sizeof(Place)) return NULL;
    Place *table = PyMem_RawMalloc(size * sizeof(Place));
    if (table != NULL) memset(table, 0xff, size * sizeof(Place));
    return table;
}

static int grow_table(BytesIndex *self, uint64_t size)
{
    Place *table = new_table(size), *old = self->table;
    if (table == NULL) { PyErr_NoMemory(); return -1; }
    for (uint64_t at = 0; at <= self->mask; at++) {
        if (old[at].slot < 0) continue;
        uint64_t place = old[at].hash & (size - 1);
        while (table[place].slot >= 0) place = (place + 1) & (size - 1);
        table[place] = old[at];
    }
    PyMem_RawFree(old);
    self->table = table;
    self->mask = size - 1;
    return 0;
}

/* Makes room for `count` keys; returns 0, or -1 with an exception. */
static int reserve(BytesIndex *self, int64_t count)
{
    if (count > self->capacity) {
        int64_t capacity = 2 * self->capacity;
        int64_t *ends = PyMem_RawRealloc(self->ends, (size_t)(capacity + 1) * 8);
        if (ends == NULL) { PyErr_NoMemory(); return -1; }
        self->ends = ends;
        self->capacity = capacity;
    }
    uint64_t size = table_size(count);
    return size > self->mask + 1 ? grow_table(self, size) : 0;
}

static int append(BytesIndex *self, const char *key, int64_t size)
{
    int64_t end = self->ends[self->count];
    if (size > self->data_capacity - end) {
        if (size > PY_SSIZE_T_MAX / 2 - end) { PyErr_NoMemory(); return -1; }
        int64_t capacity = 2 * (end + size);
        char *data = PyMem_RawRealloc(self->data, (size_t)capacity);
        if (data == NULL) { PyErr_NoMemory(); return -1; }
        self->data = data;
        self->data_capacity = capacity;
    }
    if (size) memcpy(self->data + end, key, (size_t)size);
    self->ends[++self->count] = end + size;
    return 0;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"slots_max", "seed", "room", NULL};
    long long slots_max, seed, room = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "LL|L", names, &slots_max, &seed, &room)) return NULL;
    if (slots_max < 1 || slots_max > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "an index of %lld slots is not possible", slots_max);
    BytesIndex *self = (BytesIndex *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->slots_max = slots_max;
    self->seed = mix((uint64_t)seed);
    self->capacity = first_capacity(room, slots_max);
    self->ends = PyMem_RawCalloc((size_t)self->capacity + 1, 8);
    self->table = new_table(table_size(self->capacity));
    self->mask = table_size(self->capacity) - 1;
    if (self->ends != NULL && self->table != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void destroy(BytesIndex *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(self->table);
    PyMem_RawFree(self->ends);
    PyMem_RawFree(self->data);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static inline int is_key_of(const BytesIndex *self, int32_t slot, const char *key, int64_t size)
{
    int64_t begin = self->ends[slot];
    if (self->ends[slot + 1] - begin != size) return 0;
    return size == 0 || memcmp(self->data + begin, key, (size_t)size) == 0;
}

/* Writes the slot of each key, and adds unknown keys if `adds`; returns 0, or -1 with an exception. */
static int look_up(BytesIndex *self, const Keys *keys, char *slots, int adds)
{
    uint32_t hashes[BLOCK];
    int64_t begin, size;
    for (int64_t start = 0; start < keys->count; start += BLOCK) {
        int64_t end = keys->count - start < BLOCK ? keys->count : start + BLOCK;
        if (adds && reserve(self, self->count + (end - start)) < 0) return -1;
        Place *table = self->table;
        for (int64_t row = start; row < end; row++) {
            if (bounds_of(keys, row, &begin, &size) < 0) return -1;
            hashes[row - start] = hash_of(keys->data.data + begin, size, self->seed);
            FETCH(&table[hashes[row - start] & self->mask]);
        }
        for (int64_t row = start; row < end; row++) {
            int32_t slot = table[hashes[row - start] & self->mask].slot;
            if (slot >= 0) FETCH(&self->ends[slot]);
        }
        for (int64_t row = start; row < end; row++) {
            int32_t slot = table[hashes[row - start] & self->mask].slot;
            if (slot >= 0) FETCH(self->data + self->ends[slot]);
        }
        for (int64_t row = start; row < end; row++) {
            uint32_t hash = hashes[row - start];
            uint64_t place = hash & self->mask;
            if (bounds_of(keys, row, &begin, &size) < 0) return -1;
            const char *key = keys->data.data + begin;
            while (table[place].slot >= 0 &&
                   !(table[place].hash == hash && is_key_of(self, table[place].slot, key, size)))
                place = (place + 1) & self->mask;
            int32_t slot = table[place].slot;
            if (slot < 0 && adds) {
                if (self->count >= self->slots_max) { too_many_keys(self->slots_max); return -1; }
                slot = (int32_t)self->count;
                if (append(self, key, size) < 0) return -1;
                table[place].hash = hash;
                table[place].slot = slot;
            }
            store_i32(slots, row, slot);
        }
    }
    return 0;
}

static PyObject *slots_of(BytesIndex *self, PyObject *args, int adds)
{
    PyObject *offsets_object, *data_object, *slots_object, *result = NULL;
    Keys keys;
    Items slots;
    if (!PyArg_ParseTuple(args, "OOpO", &offsets_object, &data_object, &keys.is_large, &slots_object)) return NULL;
    if (take_items(offsets_object, keys.is_large ? 8 : 4, 0, "offsets", &keys.offsets) < 0) return NULL;
    if (take_items(data_object, 1, 0, "data", &keys.data) == 0) {
        if (take_items(slots_object, 4, 1, "slots", &slots) == 0) {
            keys.count = slots.items;
            if (check_equal(keys.offsets.items, slots.items + 1, "offsets") == 0 &&
                look_up(self, &keys, slots.data, adds) == 0)
                result = Py_NewRef(Py_None);
            release_items(&slots);
        }
        release_items(&keys.data);
    }
    release_items(&keys.offsets);
    return result;
}

static PyObject *add(BytesIndex *self, PyObject *args) { return slots_of(self, args, 1); }
static PyObject *find(BytesIndex *self, PyObject *args) { return slots_of(self, args, 0); }

/* Returns (offsets, data) with room for `count` keys of `size` bytes, or NULL with an exception. */
static PyObject *new_keys(int64_t count, int64_t size)
{
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * 8);
    PyObject *data = PyBytes_FromStringAndSize(NULL, size);
    PyObject *pair = offsets != NULL && data != NULL ? PyTuple_Pack(2, offsets, data) : NULL;
    Py_XDECREF(offsets);
    Py_XDECREF(data);
    return pair;
}

static PyObject *keys_from(BytesIndex *self, PyObject *args)
{
    long long first;
    if (!PyArg_ParseTuple(args, "L", &first)) return NULL;
    if (first < 0 || first > self->count)
        return PyErr_Format(PyExc_IndexError, "slot %lld was given, and 0 to %lld are possible", first,
                            (long long)self->count);
    int64_t begin = self->ends[first], size = self->ends[self->count] - begin;
    PyObject *pair = new_keys(self->count - first, size);
    if (pair == NULL) return NULL;
    char *offsets = PyBytes_AS_STRING(PyTuple_GET_ITEM(pair, 0));
    for (int64_t slot = first; slot <= self->count; slot++) store_i64(offsets, slot - first, self->ends[slot] - begin);
    if (size) memcpy(PyBytes_AS_STRING(PyTuple_GET_ITEM(pair, 1)), self->data + begin, (size_t)size);
    return pair;
}

static PyObject *copy_at(const BytesIndex *self, const Items *slots)
{
    int64_t size = 0;
    for (int64_t row = 0; row < slots->items; row++) {
        int64_t slot = load_i64(slots->data, row);
        if (slot < 0 || slot >= self->count)
            return PyErr_Format(PyExc_IndexError, "slot %lld was given, and 0 to %lld are in use", (long long)slot,
                                (long long)self->count - 1);
        int64_t more = self->ends[slot + 1] - self->ends[slot];
        if (more > PY_SSIZE_T_MAX / 2 - size) return PyErr_NoMemory();
        size += more;
    }
    PyObject *pair = new_keys(slots->items, size);
    if (pair == NULL) return NULL;
    char *offsets = PyBytes_AS_STRING(PyTuple_GET_ITEM(pair, 0)), *data = PyBytes_AS_STRING(PyTuple_GET_ITEM(pair, 1));
    int64_t end = 0;
    store_i64(offsets, 0, 0);
    for (int64_t row = 0; row < slots->items; row++) {
        int64_t slot = load_i64(slots->data, row);
        int64_t begin = self->ends[slot], more = self->ends[slot + 1] - begin;
        if (more) memcpy(data + end, self->data + begin, (size_t)more);
        end += more;
        store_i64(offsets, row + 1, end);
    }
    return pair;
}

static PyObject *keys_at(BytesIndex *self, PyObject *slots_object)
{
    Items slots;
    if (take_items(slots_object, 8, 0, "slots", &slots) < 0) return NULL;
    PyObject *pair = copy_at(self, &slots);
    release_items(&slots);
    return pair;
}

static Py_ssize_t length(BytesIndex *self) { return (Py_ssize_t)self->count; }

static PyObject *nbytes(BytesIndex *self, void *Py_UNUSED(closure))
{
    uint64_t table = (self->mask + 1) * sizeof(Place), ends = ((uint64_t)self->capacity + 1) * 8;
    return PyLong_FromUnsignedLongLong(table + ends + (uint64_t)self->data_capacity);
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)add, METH_VARARGS,
     "add(offsets, data, is_large, slots): writes the slot of each key; unknown ones are added."},
    {"find", (PyCFunction)find, METH_VARARGS,
     "find(offsets, data, is_large, slots): writes the slot of each key, -1 for an unknown one."},
    {"keys_from", (PyCFunction)keys_from, METH_VARARGS, "keys_from(first): (offsets, data) of the keys of slots first on."},
    {"keys_at", (PyCFunction)keys_at, METH_O, "keys_at(slots): (offsets, data) of the keys of slots."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {{"nbytes", (getter)nbytes, NULL, "Memory in bytes.", NULL}, {NULL}};

static PyType_Slot type_slots[] = {
    {Py_tp_new, create},          {Py_tp_dealloc, destroy}, {Py_tp_methods, methods},
    {Py_tp_getset, properties},   {Py_sq_length, length},   {Py_tp_doc, "Index from byte strings to slots."},
    {0, NULL},
};

PyType_Spec bytes_index_spec = {
    .name = "clonos.kernels._native.BytesIndex",
    .basicsize = sizeof(BytesIndex),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};
