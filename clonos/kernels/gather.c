/* Functions over columns: the order of rows by receiver, gathering of rows, running counts. */

#include "native.h"

#define FEW_RECEIVERS 6

static int check_row(int64_t row, int64_t end)
{
    if (LIKELY(0 <= row && row < end)) return 0;
    PyErr_Format(PyExc_IndexError, "row %lld was given, and 0 to %lld exist", (long long)row, (long long)end - 1);
    return -1;
}

/* The same for few receivers: a row goes over the rows of each, and its place is kept in a register. */
static int sort_rows_of_few(const Items *targets, int64_t width, const Items *order, const Items *ends)
{
    int64_t filled = 0, rows = targets->items;
    for (int64_t target = 0; target < width; target++) {
        for (int64_t row = 0; row < rows && filled < rows; row++) {
            store_i64(order->data, filled, row); /* the next row overwrites it if this one goes elsewhere */
            filled += load_i32(targets->data, row) == target;
        }
        store_i64(ends->data, target, filled);
    }
    if (filled == rows) return 0;
    PyErr_Format(PyExc_IndexError, "another receiver was given, and 0 to %lld exist", (long long)width - 1);
    return -1;
}

/* partition_order(targets: int32, width, order: int64, ends: int64): counting sort, stable. */
static int sort_rows(const Items *targets, int64_t width, const Items *order, const Items *ends)
{
    if (check_equal(order->items, targets->items, "order") < 0 || check_equal(ends->items, width, "ends") < 0) return -1;
    if (width <= FEW_RECEIVERS) return sort_rows_of_few(targets, width, order, ends);
    for (int64_t target = 0; target < width; target++) store_i64(ends->data, target, 0);
    for (int64_t row = 0; row < targets->items; row++) {
        int32_t target = load_i32(targets->data, row);
        if (!LIKELY(0 <= target && target < width)) {
            PyErr_Format(PyExc_IndexError, "receiver %d was given, and 0 to %lld exist", (int)target, (long long)width - 1);
            return -1;
        }
        store_i64(ends->data, target, load_i64(ends->data, target) + 1);
    }
    int64_t before = 0;
    for (int64_t target = 0; target < width; target++) {
        int64_t rows = load_i64(ends->data, target);
        store_i64(ends->data, target, before);
        before += rows;
    }
    for (int64_t row = 0; row < targets->items; row++) {
        int32_t target = load_i32(targets->data, row);
        int64_t place = load_i64(ends->data, target);
        /* Buffers of the caller may overlap, and then a count is not what it was. */
        if (!LIKELY(0 <= target && target < width && 0 <= place && place < order->items)) {
            PyErr_SetString(PyExc_ValueError, "targets, order and ends overlap");
            return -1;
        }
        store_i64(order->data, place, row);
        store_i64(ends->data, target, place + 1);
    }
    return 0;
}

static PyObject *partition_order(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *targets_object, *order_object, *ends_object, *result = NULL;
    long long width;
    Items targets, order, ends;
    if (!PyArg_ParseTuple(args, "OLOO", &targets_object, &width, &order_object, &ends_object)) return NULL;
    if (take_items(targets_object, 4, 0, "targets", &targets) < 0) return NULL;
    if (take_items(order_object, 8, 1, "order", &order) == 0) {
        if (take_items(ends_object, 8, 1, "ends", &ends) == 0) {
            if (sort_rows(&targets, width, &order, &ends) == 0) result = Py_NewRef(Py_None);
            release_items(&ends);
        }
        release_items(&order);
    }
    release_items(&targets);
    return result;
}

/* Copies rows of a constant size, which the compiler turns into single moves. */
#define GATHER_ROWS(size)                                                                                              \
    for (int64_t at = 0; at < order->items; at++) {                                                                    \
        int64_t row = load_i64(order->data, at);                                                                       \
        if (check_row(row, end) < 0) return -1;                                                                        \
        memcpy(to + at * (size), from + row * (size), (size_t)(size));                                                 \
    }

static int gather_rows(const Items *values, int64_t row_bytes, const Items *order, char *to)
{
    const char *from = values->data;
    int64_t end = values->items;
    if (row_bytes == 8) {
        GATHER_ROWS(8)
    } else if (row_bytes == 4) {
        GATHER_ROWS(4)
    } else {
        GATHER_ROWS(row_bytes)
    }
    return 0;
}

/* gather(values, row_bytes, order: int64) -> bytes: the rows of a column of fixed width, in the given order. */
static PyObject *gather(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *values_object, *order_object, *result = NULL;
    long long row_bytes;
    Items values, order;
    if (!PyArg_ParseTuple(args, "OLO", &values_object, &row_bytes, &order_object)) return NULL;
    if (row_bytes < 1 || row_bytes > 1 << 20)
        return PyErr_Format(PyExc_ValueError, "rows of %lld bytes are not possible", row_bytes);
    if (take_items(values_object, row_bytes, 0, "values", &values) < 0) return NULL;
    if (take_items(order_object, 8, 0, "order", &order) == 0) {
        if (order.items > PY_SSIZE_T_MAX / row_bytes - 64) PyErr_NoMemory();
        else result = PyBytes_FromStringAndSize(NULL, order.items * row_bytes);
        if (result != NULL && gather_rows(&values, row_bytes, &order, PyBytes_AS_STRING(result)) < 0) Py_CLEAR(result);
        release_items(&order);
    }
    release_items(&values);
    return result;
}

/* gather_bits(bits, first, count, order: int64) -> bytes: the bits of rows, the lowest bit of a byte first. */
static PyObject *gather_bits(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *bits_object, *order_object, *result = NULL;
    long long first, count;
    Items bits, order;
    if (!PyArg_ParseTuple(args, "OLLO", &bits_object, &first, &count, &order_object)) return NULL;
    if (take_items(bits_object, 1, 0, "bits", &bits) < 0) return NULL;
    if (first < 0 || count < 0 || bits.items > INT64_MAX / 8 || first > bits.items * 8 || count > bits.items * 8 - first) {
        PyErr_Format(PyExc_IndexError, "bits %lld to %lld do not exist", first, count);
    } else if (take_items(order_object, 8, 0, "order", &order) == 0) {
        result = PyBytes_FromStringAndSize(NULL, order.items / 8 + (order.items % 8 != 0));
        char *to = result != NULL ? PyBytes_AS_STRING(result) : NULL;
        if (result != NULL) memset(to, 0, (size_t)PyBytes_GET_SIZE(result));
        for (int64_t at = 0; result != NULL && at < order.items; at++) {
            int64_t row = load_i64(order.data, at);
            if (check_row(row, count) < 0) { Py_CLEAR(result); break; }
            int64_t bit = first + row;
            to[at >> 3] |= (char)(((bits.data[bit >> 3] >> (bit & 7)) & 1) << (at & 7));
        }
        release_items(&order);
    }
    release_items(&bits);
    return result;
}

typedef struct {
    Items offsets, data;
    int is_large;
} Texts;

static inline int64_t offset_at(const Texts *texts, int64_t row)
{
    return texts->is_large ? load_i64(texts->offsets.data, row) : load_i32(texts->offsets.data, row);
}

/* Returns the bytes of the chosen texts, or -1 with an exception, if an offset or row is wrong. */
static int64_t size_of_texts(const Texts *texts, const Items *order)
{
    int64_t size = 0, rows = texts->offsets.items - 1;
    for (int64_t at = 0; at < order->items; at++) {
        int64_t row = load_i64(order->data, at);
        if (check_row(row, rows) < 0) return -1;
        int64_t begin = offset_at(texts, row), end = offset_at(texts, row + 1);
        if (!LIKELY(0 <= begin && begin <= end && end <= texts->data.items)) {
            PyErr_Format(PyExc_ValueError, "text %lld lies at %lld to %lld in %lld bytes", (long long)row,
                         (long long)begin, (long long)end, (long long)texts->data.items);
            return -1;
        }
        if (end - begin > PY_SSIZE_T_MAX / 2 - size) { PyErr_NoMemory(); return -1; }
        size += end - begin;
    }
    if (!texts->is_large && size > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%lld bytes of texts are too many for 32-bit offsets", (long long)size);
        return -1;
    }
    return size;
}

static PyObject *copy_texts(const Texts *texts, const Items *order)
{
    int64_t size = size_of_texts(texts, order);
    if (size < 0) return NULL;
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (order->items + 1) * (texts->is_large ? 8 : 4));
    PyObject *data = PyBytes_FromStringAndSize(NULL, size);
    PyObject *pair = offsets != NULL && data != NULL ? PyTuple_Pack(2, offsets, data) : NULL;
    if (pair != NULL) {
        char *to_offsets = PyBytes_AS_STRING(offsets), *to = PyBytes_AS_STRING(data);
        int64_t filled = 0;
        for (int64_t at = 0; at <= order->items; at++) {
            if (texts->is_large) store_i64(to_offsets, at, filled);
            else store_i32(to_offsets, at, (int32_t)filled);
            if (at == order->items) break;
            int64_t row = load_i64(order->data, at), begin = offset_at(texts, row);
            int64_t more = offset_at(texts, row + 1) - begin;
            const char *from = texts->data.data + begin;
            if (more <= 16 && size - filled >= 16 && texts->data.items - begin >= 16) {
                memcpy(to + filled, from, 16); /* two moves; the next text overwrites what is too much */
            } else if (more) {
                memcpy(to + filled, from, (size_t)more);
            }
            filled += more;
        }
    }
    Py_XDECREF(offsets);
    Py_XDECREF(data);
    return pair;
}

/* gather_texts(offsets, data, is_large, order: int64) -> (offsets, data): texts in the given order. */
static PyObject *gather_texts(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *offsets_object, *data_object, *order_object, *result = NULL;
    Texts texts;
    Items order;
    if (!PyArg_ParseTuple(args, "OOpO", &offsets_object, &data_object, &texts.is_large, &order_object)) return NULL;
    if (take_items(offsets_object, texts.is_large ? 8 : 4, 0, "offsets", &texts.offsets) < 0) return NULL;
    if (take_items(data_object, 1, 0, "data", &texts.data) == 0) {
        if (take_items(order_object, 8, 0, "order", &order) == 0) {
            result = copy_texts(&texts, &order);
            release_items(&order);
        }
        release_items(&texts.data);
    }
    release_items(&texts.offsets);
    return result;
}

/* running_counts(numbers: int32, totals: int64, counts: int64): counts[i] = ++totals[numbers[i]]. */
static int count_rows(const Items *numbers, const Items *totals, const Items *counts)
{
    if (check_equal(counts->items, numbers->items, "counts") < 0) return -1;
    for (int64_t row = 0; row < numbers->items; row++) {
        int32_t number = load_i32(numbers->data, row);
        if (check_row(number, totals->items) < 0) return -1;
        int64_t total = (int64_t)((uint64_t)load_i64(totals->data, number) + 1);
        store_i64(totals->data, number, total);
        store_i64(counts->data, row, total);
    }
    return 0;
}

static PyObject *running_counts(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *numbers_object, *totals_object, *counts_object, *result = NULL;
    Items numbers, totals, counts;
    if (!PyArg_ParseTuple(args, "OOO", &numbers_object, &totals_object, &counts_object)) return NULL;
    if (take_items(numbers_object, 4, 0, "numbers", &numbers) < 0) return NULL;
    if (take_items(totals_object, 8, 1, "totals", &totals) == 0) {
        if (take_items(counts_object, 8, 1, "counts", &counts) == 0) {
            if (count_rows(&numbers, &totals, &counts) == 0) result = Py_NewRef(Py_None);
            release_items(&counts);
        }
        release_items(&totals);
    }
    release_items(&numbers);
    return result;
}

PyMethodDef gather_methods[] = {
    {"partition_order", partition_order, METH_VARARGS, "partition_order(targets, width, order, ends): sorts rows, stable."},
    {"gather", gather, METH_VARARGS, "gather(values, row_bytes, order) -> bytes"},
    {"gather_bits", gather_bits, METH_VARARGS, "gather_bits(bits, first, count, order) -> bytes"},
    {"gather_texts", gather_texts, METH_VARARGS, "gather_texts(offsets, data, is_large, order) -> (offsets, data)"},
    {"running_counts", running_counts, METH_VARARGS, "running_counts(numbers, totals, counts)"},
    {NULL, NULL, 0, NULL},
};
