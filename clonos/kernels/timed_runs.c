/* Runs: records of a join, sorted by the slot of their key, then by timestamp, then by arrival. */

#include "native.h"

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
#define LANES 16 /* searches that go on together, so that misses of the cache overlap */

typedef struct {
    Items slots, times;
} Keys;

static void release_keys(Keys *keys)
{
    release_items(&keys->slots);
    release_items(&keys->times);
}

static int take_keys(PyObject *slots, PyObject *times, Keys *keys)
{
    if (take_items(slots, 8, 0, "slots", &keys->slots) < 0) return -1;
    if (take_items(times, 8, 0, "times", &keys->times) == 0) {
        if (check_equal(keys->times.items, keys->slots.items, "times") == 0) return 0;
        release_items(&keys->times);
    }
    release_items(&keys->slots);
    return -1;
}

static inline int is_below(int64_t slot, int64_t time, int64_t other_slot, int64_t other_time)
{
    return (slot < other_slot) | ((slot == other_slot) & (time < other_time));
}

/* Sorts places by words, stable, by counting their digits. `order` has the result, and `spare` is of the same size. */
static void sort_by_words(const Items *words, int64_t *order, int64_t *spare)
{
    int64_t rows = words->items, least = INT64_MAX, highest = INT64_MIN, ends[DIGITS];
    for (int64_t row = 0; row < rows; row++) {
        int64_t word = load_i64(words->data, row);
        if (word < least) least = word;
        if (word > highest) highest = word;
    }
    uint64_t width = rows ? (uint64_t)highest - (uint64_t)least : 0;
    for (int shift = 0; shift < 64 && width >> shift; shift += DIGIT_BITS) {
        memset(ends, 0, sizeof ends);
        for (int64_t row = 0; row < rows; row++)
            ends[(((uint64_t)load_i64(words->data, row) - (uint64_t)least) >> shift) & (DIGITS - 1)]++;
        int64_t before = 0;
        for (int digit = 0; digit < DIGITS; digit++) {
            int64_t count = ends[digit];
            ends[digit] = before;
            before += count;
        }
        for (int64_t at = 0; at < rows; at++) {
            int64_t row = order[at];
            uint64_t word = (uint64_t)load_i64(words->data, row) - (uint64_t)least;
            spare[ends[(word >> shift) & (DIGITS - 1)]++] = row;
        }
        memcpy(order, spare, (size_t)rows * 8);
    }
}

/* run_order(slots: int64, times: int64, order: int64): the places by slot, then by timestamp, stable. */
static PyObject *run_order(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *slots_object, *times_object, *order_object, *result = NULL;
    Keys keys;
    Items order;
    if (!PyArg_ParseTuple(args, "OOO", &slots_object, &times_object, &order_object)) return NULL;
    if (take_keys(slots_object, times_object, &keys) < 0) return NULL;
    if (take_items(order_object, 8, 1, "order", &order) == 0) {
        int64_t rows = keys.slots.items;
        if (check_equal(order.items, rows, "order") == 0) {
            int64_t *places = PyMem_Malloc((size_t)(rows ? rows : 1) * 16);
            if (places == NULL) {
                PyErr_NoMemory();
            } else {
                for (int64_t row = 0; row < rows; row++) places[row] = row;
                sort_by_words(&keys.times, places, places + rows);
                sort_by_words(&keys.slots, places, places + rows);
                memcpy(order.data, places, (size_t)rows * 8);
                PyMem_Free(places);
                result = Py_NewRef(Py_None);
            }
        }
        release_items(&order);
    }
    release_keys(&keys);
    return result;
}

/* merged_order(slots: int64, times: int64, middle, order: int64): the same of two runs, the second from `middle` on. */
static PyObject *merged_order(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *slots_object, *times_object, *order_object, *result = NULL;
    long long middle;
    Keys keys;
    Items order;
    if (!PyArg_ParseTuple(args, "OOLO", &slots_object, &times_object, &middle, &order_object)) return NULL;
    if (take_keys(slots_object, times_object, &keys) < 0) return NULL;
    if (take_items(order_object, 8, 1, "order", &order) == 0) {
        int64_t rows = keys.slots.items;
        if (middle < 0 || middle > rows) {
            PyErr_Format(PyExc_IndexError, "the second run begins at %lld of %lld", middle, (long long)rows);
        } else if (check_equal(order.items, rows, "order") == 0) {
            int64_t left = 0, right = middle;
            const char *slots = keys.slots.data, *times = keys.times.data;
            for (int64_t at = 0; at < rows; at++) {
                int is_right = right < rows
                    && (left >= middle
                        || is_below(load_i64(slots, right), load_i64(times, right), load_i64(slots, left), load_i64(times, left)));
                store_i64(order.data, at, is_right ? right : left);
                right += is_right;
                left += !is_right;
            }
            result = Py_NewRef(Py_None);
        }
        release_items(&order);
    }
    release_keys(&keys);
    return result;
}

/* Finds for up to LANES keys the first record that is not below (slot, time). */
static void search(const Keys *run, const char *slots, const char *times, int64_t count, int64_t *found)
{
    int64_t left = run->slots.items;
    for (int64_t lane = 0; lane < count; lane++) found[lane] = 0;
    while (left > 0) {
        int64_t half = left / 2;
        for (int64_t lane = 0; lane < count; lane++) {
            int64_t at = found[lane] + half;
            int is_lower = is_below(load_i64(run->slots.data, at), load_i64(run->times.data, at), load_i64(slots, lane),
                                    load_i64(times, lane));
            found[lane] += is_lower ? left - half : 0;
        }
        left = half;
    }
}

/* Where the records of each slot begin, from the least slot of a run on, and where those of the last one end. */
typedef struct {
    Items places; /* one more than slots; none, and the whole run is searched */
    int64_t least;
} Begins;

/* Finds the same by a table of the places at which slots begin; returns -1 if the table is not of this run. */
static int look_up(const Keys *run, const Begins *begins, const char *slots, const char *times, int64_t count, int64_t *found)
{
    int64_t width = begins->places.items - 1, rows = run->slots.items, first[LANES], end[LANES];
    for (int64_t lane = 0; lane < count; lane++) {
        int64_t slot = load_i64(slots, lane);
        uint64_t place = (uint64_t)slot - (uint64_t)begins->least;
        first[lane] = slot < begins->least ? -1 : place >= (uint64_t)width ? width : (int64_t)place;
        if (first[lane] >= 0) FETCH(begins->places.data + 4 * first[lane]);
    }
    for (int64_t lane = 0; lane < count; lane++) {
        int64_t at = first[lane];
        first[lane] = at < 0 ? 0 : load_i32(begins->places.data, at);
        end[lane] = at < 0 || at == width ? first[lane] : load_i32(begins->places.data, at + 1);
        if (first[lane] < 0 || first[lane] > end[lane] || end[lane] > rows) return -1;
        if (first[lane] < end[lane]) FETCH(run->times.data + 8 * first[lane]);
    }
    for (int64_t lane = 0; lane < count; lane++) {
        int64_t low = first[lane], high = end[lane], time = load_i64(times, lane);
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (load_i64(run->times.data, middle) < time) low = middle + 1;
            else high = middle;
        }
        found[lane] = low;
    }
    return 0;
}

/* run_begins(slots: int64, begins: int32): where each slot begins, and the end; slots ascend, all are in the table. */
static PyObject *run_begins(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *slots_object, *begins_object, *result = NULL;
    Items slots, begins;
    if (!PyArg_ParseTuple(args, "OO", &slots_object, &begins_object)) return NULL;
    if (take_items(slots_object, 8, 0, "slots", &slots) < 0) return NULL;
    if (take_items(begins_object, 4, 1, "begins", &begins) == 0) {
        int64_t rows = slots.items, width = begins.items - 1, least = rows ? load_i64(slots.data, 0) : 0, next = 0;
        int64_t row = 0;
        for (; row < rows && rows < INT32_MAX; row++) {
            int64_t slot = load_i64(slots.data, row);
            if (slot < least || (uint64_t)slot - (uint64_t)least >= (uint64_t)(width < 0 ? 0 : width)) break;
            while (next <= slot - least) store_i32(begins.data, next++, (int32_t)row);
        }
        if (row == rows) {
            while (next <= width) store_i32(begins.data, next++, (int32_t)rows);
            result = Py_NewRef(Py_None);
        } else {
            PyErr_Format(PyExc_IndexError, "slots from %lld on have no place in a table of %lld", (long long)least,
                         (long long)width);
        }
        release_items(&begins);
    }
    release_items(&slots);
    return result;
}

/* Returns the end of the records of a slot up to a timestamp, which begin at `low`: doubles its steps, then halves them. */
static int64_t end_of(const Keys *run, int64_t slot, int64_t last, int64_t low)
{
    int64_t rows = run->slots.items, step = 1, high = low;
#define IS_IN(at) (load_i64(run->slots.data, at) == slot && load_i64(run->times.data, at) <= last)
    while (high < rows && IS_IN(high)) {
        low = high + 1;
        high = step < rows - high ? high + step : rows;
        step *= 2;
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (IS_IN(middle)) low = middle + 1;
        else high = middle;
    }
#undef IS_IN
    return low;
}

/* run_bounds(run_slots, run_times, begins: int32, slots, firsts, lasts, low, high): where the records of each slot from the
 * first to the last timestamp begin and end. `begins` is the table of `run_begins`, or empty. */
static int find_bounds(const Keys *run, const Begins *begins, const Items *in, const Items *out)
{
    int64_t count = in[0].items, found[LANES];
    for (int each = 1; each < 3; each++)
        if (check_equal(in[each].items, count, "timestamps") < 0) return -1;
    for (int each = 0; each < 2; each++)
        if (check_equal(out[each].items, count, "bounds") < 0) return -1;
    for (int64_t first = 0; first < count; first += LANES) {
        int64_t some = count - first < LANES ? count - first : LANES;
        if (!begins->places.items) {
            search(run, in[0].data + 8 * first, in[1].data + 8 * first, some, found);
        } else if (look_up(run, begins, in[0].data + 8 * first, in[1].data + 8 * first, some, found) < 0) {
            PyErr_SetString(PyExc_IndexError, "the table of begins is that of another run");
            return -1;
        }
        for (int64_t lane = 0; lane < some; lane++) {
            int64_t at = first + lane;
            store_i64(out[0].data, at, found[lane]);
            store_i64(out[1].data, at, end_of(run, load_i64(in[0].data, at), load_i64(in[2].data, at), found[lane]));
        }
    }
    return 0;
}

static PyObject *run_bounds(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *run_slots, *run_times, *places, *objects[5], *result = NULL;
    static const char *const names[] = {"slots", "firsts", "lasts", "low", "high"};
    Keys run;
    Begins begins;
    Items items[5];
    int taken = 0;
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &run_slots, &run_times, &places, &objects[0], &objects[1], &objects[2],
                          &objects[3], &objects[4]))
        return NULL;
    if (take_keys(run_slots, run_times, &run) < 0) return NULL;
    if (take_items(places, 4, 0, "begins", &begins.places) == 0) {
        begins.least = run.slots.items ? load_i64(run.slots.data, 0) : 0;
        while (taken < 5 && take_items(objects[taken], 8, taken > 2, names[taken], &items[taken]) == 0) taken++;
        if (taken == 5 && find_bounds(&run, &begins, items, items + 3) == 0) result = Py_NewRef(Py_None);
        while (taken) release_items(&items[--taken]);
        release_items(&begins.places);
    }
    release_keys(&run);
    return result;
}

PyMethodDef timed_runs_methods[] = {
    {"run_order", run_order, METH_VARARGS, "run_order(slots, times, order): sorts places, stable."},
    {"merged_order", merged_order, METH_VARARGS, "merged_order(slots, times, middle, order): merges two runs, stable."},
    {"run_begins", run_begins, METH_VARARGS, "run_begins(slots, begins): where each slot of a run begins."},
    {"run_bounds", run_bounds, METH_VARARGS, "run_bounds(run_slots, run_times, begins, slots, firsts, lasts, low, high)"},
    {NULL, NULL, 0, NULL},
};
