/* The highest rows of each key: in a batch, and so far. */

#include "native.h"

typedef struct {
    int64_t rank, row;
} Held;

enum { IS_HIGH = 1, IS_FIRST = 2 };

/* Keeps the k highest ranks of each number, highest first, of equal ones the earlier; returns 0, or -1 with an exception.
 * A row that was higher than all before it stays marked when later ones push it out. */
static int mark_highest(const Items *numbers, const Items *ranks, int64_t k, int64_t count, Held *held, int64_t *sizes,
                        char *marks)
{
    for (int64_t row = 0; row < numbers->items; row++) {
        int32_t number = load_i32(numbers->data, row);
        if (!LIKELY(0 <= number && number < count)) {
            PyErr_Format(PyExc_IndexError, "number %d was given, and 0 to %lld exist", (int)number, (long long)count - 1);
            return -1;
        }
        int64_t rank = load_i64(ranks->data, row), size = sizes[number], place = size;
        Held *theirs = held + number * k;
        if (size == k) {
            if (theirs[k - 1].rank >= rank) continue;
            marks[theirs[k - 1].row] &= IS_FIRST;
            place = k - 1;
        } else {
            sizes[number] = size + 1;
        }
        for (; place > 0 && theirs[place - 1].rank < rank; place--) theirs[place] = theirs[place - 1];
        theirs[place].rank = rank;
        theirs[place].row = row;
        marks[row] = place ? IS_HIGH : IS_HIGH | IS_FIRST;
    }
    return 0;
}

/* highest_rows(numbers: int32, ranks: int64, k, count, chosen: bool): chosen rows are 1, and others 0. */
static PyObject *highest_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *numbers_object, *ranks_object, *chosen_object, *result = NULL;
    long long k, count;
    Items numbers, ranks, chosen;
    if (!PyArg_ParseTuple(args, "OOLLO", &numbers_object, &ranks_object, &k, &count, &chosen_object)) return NULL;
    if (k < 1 || count < 0 || k > 1 << 20 || count > PY_SSIZE_T_MAX / (int64_t)sizeof(Held) / k)
        return PyErr_Format(PyExc_ValueError, "%lld ranks of %lld keys are not possible", k, count);
    if (take_items(numbers_object, 4, 0, "numbers", &numbers) < 0) return NULL;
    if (take_items(ranks_object, 8, 0, "ranks", &ranks) == 0) {
        if (take_items(chosen_object, 1, 1, "chosen", &chosen) == 0) {
            Held *held = PyMem_RawMalloc((size_t)(count * k) * sizeof(Held) + 1);
            int64_t *sizes = PyMem_RawCalloc((size_t)count + 1, sizeof(int64_t));
            char *marks = PyMem_RawCalloc((size_t)numbers.items + 1, 1);
            if (held == NULL || sizes == NULL || marks == NULL) PyErr_NoMemory();
            else if (check_equal(ranks.items, numbers.items, "ranks") == 0 &&
                     check_equal(chosen.items, numbers.items, "chosen") == 0 &&
                     mark_highest(&numbers, &ranks, k, count, held, sizes, marks) == 0) {
                for (int64_t row = 0; row < chosen.items; row++) chosen.data[row] = marks[row] != 0;
                result = Py_NewRef(Py_None);
            }
            PyMem_RawFree(held);
            PyMem_RawFree(sizes);
            PyMem_RawFree(marks);
            release_items(&chosen);
        }
        release_items(&ranks);
    }
    release_items(&numbers);
    return result;
}

typedef struct {
    Items ranks, numbers, counts, slots, candidates, above, sizes, left, lists;
} Insertion;

static int insert_all(const Insertion *all, int64_t k)
{
    char *ranks = all->ranks.data, *numbers = all->numbers.data, *list = all->lists.data;
    for (int64_t row = 0; row < all->slots.items; row++) {
        int32_t slot = load_i32(all->slots.data, row);
        if (!LIKELY(0 <= slot && slot < all->counts.items)) {
            PyErr_Format(PyExc_IndexError, "slot %d was given, and 0 to %lld exist", (int)slot,
                         (long long)all->counts.items - 1);
            return -1;
        }
        int64_t rank = load_i64(all->candidates.data, row), count = load_i64(all->counts.data, slot), first = slot * k;
        if (!LIKELY(0 <= count && count <= k)) {
            PyErr_Format(PyExc_ValueError, "%lld ranks of %lld are in use", (long long)count, (long long)k);
            return -1;
        }
        int is_full = count == k;
        store_i64(all->above.data, row, k);
        store_i64(all->sizes.data, row, 0);
        store_i64(all->left.data, row, -1);
        if (is_full && load_i64(ranks, first + k - 1) >= rank) continue;
        int64_t place = is_full ? k - 1 : count;
        if (is_full) store_i64(all->left.data, row, load_i64(numbers, first + k - 1));
        else store_i64(all->counts.data, slot, ++count);
        for (; place > 0 && load_i64(ranks, first + place - 1) < rank; place--) {
            store_i64(ranks, first + place, load_i64(ranks, first + place - 1));
            store_i64(numbers, first + place, load_i64(numbers, first + place - 1));
        }
        store_i64(ranks, first + place, rank);
        store_i64(numbers, first + place, -2 - row);
        store_i64(all->above.data, row, place);
        store_i64(all->sizes.data, row, count);
        if (all->lists.items) {
            memcpy(list, numbers + 8 * first, (size_t)(8 * count));
            list += 8 * count;
        }
    }
    return 0;
}

/* insert_highest(k, ranks, numbers, counts, slots: int32, candidates, above, sizes, left, lists), int64 where nothing else
 * is said: see `insert_highest` in ranks.py. */
static PyObject *insert_highest(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const char *names[] = {"ranks", "numbers", "counts", "slots", "candidates", "above", "sizes", "left", "lists"};
    PyObject *objects[9], *result = NULL;
    long long k;
    int taken = 0;
    Insertion all;
    Items *items[] = {&all.ranks, &all.numbers, &all.counts, &all.slots, &all.candidates,
                      &all.above, &all.sizes, &all.left, &all.lists};
    if (!PyArg_ParseTuple(args, "LOOOOOOOOO", &k, &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &objects[6], &objects[7], &objects[8]))
        return NULL;
    if (k < 1 || k > 1 << 20) return PyErr_Format(PyExc_ValueError, "%lld ranks of a key are not possible", k);
    while (taken < 9 && take_items(objects[taken], taken == 3 ? 4 : 8, taken != 3 && taken != 4, names[taken],
                                   items[taken]) == 0)
        taken++;
    if (taken == 9) {
        int64_t rows = all.slots.items, cells = all.counts.items * k;
        if (check_equal(all.ranks.items, cells, "ranks") == 0 && check_equal(all.numbers.items, cells, "numbers") == 0 &&
            check_equal(all.candidates.items, rows, "candidates") == 0 && check_equal(all.above.items, rows, "above") == 0 &&
            check_equal(all.sizes.items, rows, "sizes") == 0 && check_equal(all.left.items, rows, "left") == 0 &&
            (all.lists.items == 0 || check_equal(all.lists.items, rows * k, "lists") == 0) && insert_all(&all, k) == 0)
            result = Py_NewRef(Py_None);
    }
    while (taken > 0) release_items(items[--taken]);
    return result;
}

PyMethodDef ranks_methods[] = {
    {"highest_rows", highest_rows, METH_VARARGS, "highest_rows(numbers, ranks, k, count, chosen)"},
    {"insert_highest", insert_highest, METH_VARARGS,
     "insert_highest(k, ranks, numbers, counts, slots, candidates, above, sizes, left, lists)"},
    {NULL, NULL, 0, NULL},
};
