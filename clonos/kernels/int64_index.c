/* Int64Index(slots_max, seed, room): open addressing with linear probing; a place holds the key beside its slot. */

#include "native.h"

typedef struct {
    int64_t key;
    int32_t slot; /* -1 if the place is free */
    int32_t unused;
} Place;

typedef struct {
    PyObject_HEAD
    Place *table;
    uint64_t mask; /* number of places - 1, which is a power of two - 1 */
    int64_t *keys; /* by slot */
    int64_t count, capacity, slots_max;
    uint64_t seed;
} Int64Index;

static inline uint64_t place_of(const Int64Index *self, int64_t key)
{
    return mix((uint64_t)key ^ self->seed) & self->mask;
}

static Place *new_table(uint64_t size)
{
    if (size > PY_SSIZE_T_MAX / sizeof(Place)) return NULL;
    Place *table = PyMem_RawMalloc(size * sizeof(Place));
    if (table != NULL) memset(table, 0xff, size * sizeof(Place));
    return table;
}

static int grow_table(Int64Index *self, uint64_t size)
{
    Place *table = new_table(size);
    if (table == NULL) { PyErr_NoMemory(); return -1; }
    PyMem_RawFree(self->table);
    self->table = table;
    self->mask = size - 1;
    for (int64_t slot = 0; slot < self->count; slot++) {
        if (slot + 16 < self->count) FETCH(&table[place_of(self, self->keys[slot + 16])]);
        uint64_t place = place_of(self, self->keys[slot]);
        while (table[place].slot >= 0) place = (place + 1) & self->mask;
        table[place].key = self->keys[slot];
        table[place].slot = (int32_t)slot;
    }
    return 0;
}

/* Makes room for `count` keys; returns 0, or -1 with an exception. */
static int reserve(Int64Index *self, int64_t count)
{
    if (count > self->capacity) {
        int64_t capacity = 2 * self->capacity;
        int64_t *keys = PyMem_RawRealloc(self->keys, (size_t)capacity * 8);
        if (keys == NULL) { PyErr_NoMemory(); return -1; }
        self->keys = keys;
        self->capacity = capacity;
    }
    uint64_t size = table_size(count);
    return size > self->mask + 1 ? grow_table(self, size) : 0;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"slots_max", "seed", "room", NULL};
    long long slots_max, seed, room = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "LL|L", names, &slots_max, &seed, &room)) return NULL;
    if (slots_max < 1 || slots_max > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "an index of %lld slots is not possible", slots_max);
    Int64Index *self = (Int64Index *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->slots_max = slots_max;
    self->seed = mix((uint64_t)seed);
    self->capacity = first_capacity(room, slots_max);
    self->keys = PyMem_RawMalloc((size_t)self->capacity * 8);
    self->table = new_table(table_size(self->capacity));
    self->mask = table_size(self->capacity) - 1;
    if (self->keys != NULL && self->table != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void destroy(Int64Index *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(self->table);
    PyMem_RawFree(self->keys);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* Writes the slot of each key, and adds unknown keys if `adds`; returns 0, or -1 with an exception. */
static int look_up(Int64Index *self, const char *keys, char *slots, int64_t count, int adds)
{
    uint64_t places[BLOCK];
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t end = count - start < BLOCK ? count : start + BLOCK;
        if (adds && reserve(self, self->count + (end - start)) < 0) return -1;
        Place *table = self->table;
        for (int64_t row = start; row < end; row++) {
            uint64_t place = place_of(self, load_i64(keys, row));
            places[row - start] = place;
            FETCH(&table[place]);
        }
        for (int64_t row = start; row < end; row++) {
            int64_t key = load_i64(keys, row);
            uint64_t place = places[row - start];
            while (table[place].slot >= 0 && table[place].key != key) place = (place + 1) & self->mask;
            int32_t slot = table[place].slot;
            if (slot < 0 && adds) {
                if (self->count >= self->slots_max) { too_many_keys(self->slots_max); return -1; }
                slot = (int32_t)self->count++;
                self->keys[slot] = key;
                table[place].key = key;
                table[place].slot = slot;
            }
            store_i32(slots, row, slot);
        }
    }
    return 0;
}

static PyObject *slots_of(Int64Index *self, PyObject *args, int adds)
{
    PyObject *keys_object, *slots_object, *result = NULL;
    Items keys, slots;
    if (!PyArg_ParseTuple(args, "OO", &keys_object, &slots_object)) return NULL;
    if (take_items(keys_object, 8, 0, "keys", &keys) < 0) return NULL;
    if (take_items(slots_object, 4, 1, "slots", &slots) == 0) {
        if (check_equal(slots.items, keys.items, "slots") == 0 &&
            look_up(self, keys.data, slots.data, keys.items, adds) == 0)
            result = Py_NewRef(Py_None);
        release_items(&slots);
    }
    release_items(&keys);
    return result;
}

static PyObject *add(Int64Index *self, PyObject *args) { return slots_of(self, args, 1); }
static PyObject *find(Int64Index *self, PyObject *args) { return slots_of(self, args, 0); }

static PyObject *copy_keys(Int64Index *self, PyObject *args)
{
    long long first;
    PyObject *keys_object, *result = NULL;
    Items keys;
    if (!PyArg_ParseTuple(args, "LO", &first, &keys_object)) return NULL;
    if (first < 0 || first > self->count)
        return PyErr_Format(PyExc_IndexError, "slot %lld was given, and 0 to %lld are possible", first,
                            (long long)self->count);
    if (take_items(keys_object, 8, 1, "keys", &keys) < 0) return NULL;
    if (check_equal(keys.items, self->count - first, "keys") == 0) {
        if (keys.items) memcpy(keys.data, self->keys + first, (size_t)keys.items * 8);
        result = Py_NewRef(Py_None);
    }
    release_items(&keys);
    return result;
}

static int gather_keys(const Int64Index *self, const Items *slots, const Items *keys)
{
    if (check_equal(keys->items, slots->items, "keys") < 0) return -1;
    for (int64_t row = 0; row < slots->items; row++) {
        int64_t slot = load_i64(slots->data, row);
        if (slot < 0 || slot >= self->count) {
            PyErr_Format(PyExc_IndexError, "slot %lld was given, and 0 to %lld are in use", (long long)slot,
                         (long long)self->count - 1);
            return -1;
        }
        store_i64(keys->data, row, self->keys[slot]);
    }
    return 0;
}

static PyObject *keys_at(Int64Index *self, PyObject *args)
{
    PyObject *slots_object, *keys_object, *result = NULL;
    Items slots, keys;
    if (!PyArg_ParseTuple(args, "OO", &slots_object, &keys_object)) return NULL;
    if (take_items(slots_object, 8, 0, "slots", &slots) < 0) return NULL;
    if (take_items(keys_object, 8, 1, "keys", &keys) == 0) {
        if (gather_keys(self, &slots, &keys) == 0) result = Py_NewRef(Py_None);
        release_items(&keys);
    }
    release_items(&slots);
    return result;
}

static Py_ssize_t length(Int64Index *self) { return (Py_ssize_t)self->count; }

static PyObject *nbytes(Int64Index *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong((self->mask + 1) * sizeof(Place) + (uint64_t)self->capacity * 8);
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)add, METH_VARARGS, "add(keys, slots): writes the slot of each key; unknown ones are added."},
    {"find", (PyCFunction)find, METH_VARARGS, "find(keys, slots): writes the slot of each key, -1 for an unknown one."},
    {"copy_keys", (PyCFunction)copy_keys, METH_VARARGS, "copy_keys(first, keys): writes the keys of slots first on."},
    {"keys_at", (PyCFunction)keys_at, METH_VARARGS, "keys_at(slots, keys): writes the keys of slots."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {{"nbytes", (getter)nbytes, NULL, "Memory in bytes.", NULL}, {NULL}};

static PyType_Slot type_slots[] = {
    {Py_tp_new, create},          {Py_tp_dealloc, destroy}, {Py_tp_methods, methods},
    {Py_tp_getset, properties},   {Py_sq_length, length},   {Py_tp_doc, "Index from int64 keys to slots."},
    {0, NULL},
};

PyType_Spec int64_index_spec = {
    .name = "clonos.kernels._native.Int64Index",
    .basicsize = sizeof(Int64Index),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};
