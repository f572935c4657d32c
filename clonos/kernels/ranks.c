/* The highest rows of each key in a batch. */

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

PyMethodDef ranks_methods[] = {
    {"highest_rows", highest_rows, METH_VARARGS, "highest_rows(numbers, ranks, k, count, chosen)"},
    {NULL, NULL, 0, NULL},
};
