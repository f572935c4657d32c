/* Running sums and extremes: what is in the column of state at the slot of each row, once that is added. */

#include "native.h"

enum { SUM, LEAST, MOST, LEAST_FLOAT, MOST_FLOAT };

typedef struct {
    Items slots, values, valid, totals, has, found, found_has;
} Columns;

static inline double as_float(int64_t word) { double number; memcpy(&number, &word, 8); return number; }

/* Returns whether a value takes the place of a total; a nan does not, and gives way to a number. -0.0 is before 0.0. */
static inline int replaces(int what, int64_t total, int64_t value)
{
    if (what == LEAST) return value < total;
    if (what == MOST) return value > total;
    double old = as_float(total), new = as_float(value);
    if (old != old) return new == new;
    if (old == 0 && new == 0) return what == LEAST_FLOAT ? value < total : value > total; /* -0.0 as an int is negative */
    return what == LEAST_FLOAT ? new < old : new > old;
}

static int run(int what, const Columns *all)
{
    int64_t rows = all->slots.items;
    int64_t has_rows = what == SUM ? 0 : rows, has_slots = what == SUM ? 0 : all->totals.items;
    if (check_equal(all->values.items, rows, "values") < 0 || check_equal(all->valid.items, rows, "valid") < 0 ||
        check_equal(all->found.items, rows, "found") < 0 || check_equal(all->found_has.items, has_rows, "found_has") < 0 ||
        check_equal(all->has.items, has_slots, "has") < 0)
        return -1;
    for (int64_t row = 0; row < rows; row++) {
        int32_t slot = load_i32(all->slots.data, row);
        if (!LIKELY(0 <= slot && slot < all->totals.items)) {
            PyErr_Format(PyExc_IndexError, "slot %d was given, and 0 to %lld exist", (int)slot,
                         (long long)all->totals.items - 1);
            return -1;
        }
        int64_t total = load_i64(all->totals.data, slot), value = load_i64(all->values.data, row);
        if (all->valid.data[row]) {
            if (what == SUM) total = (int64_t)((uint64_t)total + (uint64_t)value);
            else if (!all->has.data[slot] || replaces(what, total, value)) total = value;
            store_i64(all->totals.data, slot, total);
            if (what != SUM) all->has.data[slot] = 1;
        }
        store_i64(all->found.data, row, total);
        if (what != SUM) all->found_has.data[row] = all->has.data[slot] != 0;
    }
    return 0;
}

/* run_values(what, slots: int32, values, valid: bool, totals, has: bool, found, found_has: bool), which have 8 bytes an
 * item where they are no bools. A sum has no `has`: both are empty. */
static PyObject *run_values(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const int64_t sizes[] = {4, 8, 1, 8, 1, 8, 1};
    static const char *names[] = {"slots", "values", "valid", "totals", "has", "found", "found_has"};
    PyObject *objects[7], *result = NULL;
    int what, taken = 0;
    Columns all;
    Items *items[] = {&all.slots, &all.values, &all.valid, &all.totals, &all.has, &all.found, &all.found_has};
    if (!PyArg_ParseTuple(args, "iOOOOOOO", &what, &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &objects[6]))
        return NULL;
    if (what < SUM || what > MOST_FLOAT) return PyErr_Format(PyExc_ValueError, "%d is no reduction", what);
    while (taken < 7 && take_items(objects[taken], sizes[taken], taken > 2, names[taken], items[taken]) == 0) taken++;
    if (taken == 7 && run(what, &all) == 0) result = Py_NewRef(Py_None);
    while (taken > 0) release_items(items[--taken]);
    return result;
}

PyMethodDef running_methods[] = {
    {"run_values", run_values, METH_VARARGS, "run_values(what, slots, values, valid, totals, has, found, found_has)"},
    {NULL, NULL, 0, NULL},
};
