/* Gathering of rows from several arrays, the parts of a column: row i is at places[i] of part parts[i]. */

#include "native.h"

typedef struct {
    Items values, data; /* values are the offsets of texts, and data their characters */
    int has_data;
} Part;

typedef struct {
    Part *parts;
    Py_ssize_t count;
    Items numbers, places;
    int has_numbers, has_places;
} Rows;

static void release_rows(Rows *rows)
{
    for (Py_ssize_t number = 0; number < rows->count; number++) {
        release_items(&rows->parts[number].values);
        if (rows->parts[number].has_data) release_items(&rows->parts[number].data);
    }
    PyMem_RawFree(rows->parts);
    if (rows->has_numbers) release_items(&rows->numbers);
    if (rows->has_places) release_items(&rows->places);
}

static int take_part(PyObject *object, int64_t item_bytes, int is_text, Part *part)
{
    PyObject *values = object, *data = NULL;
    part->has_data = 0;
    if (is_text && (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "OO", &values, &data))) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a part of texts is a pair");
        return -1;
    }
    if (take_items(values, item_bytes, 0, "values", &part->values) < 0) return -1;
    if (!is_text) return 0;
    if (take_items(data, 1, 0, "data", &part->data) < 0) { release_items(&part->values); return -1; }
    part->has_data = 1;
    return 0;
}

/* Takes the buffers of all parts; returns 0, or -1 with an exception. Either way they have to be released. */
static int take_rows(PyObject *parts, PyObject *numbers, PyObject *places, int64_t item_bytes, int is_text, Rows *rows)
{
    memset(rows, 0, sizeof(*rows));
    rows->parts = PyMem_RawCalloc((size_t)PyTuple_GET_SIZE(parts) + 1, sizeof(Part));
    if (rows->parts == NULL) { PyErr_NoMemory(); return -1; }
    for (; rows->count < PyTuple_GET_SIZE(parts); rows->count++)
        if (take_part(PyTuple_GET_ITEM(parts, rows->count), item_bytes, is_text, &rows->parts[rows->count]) < 0) return -1;
    if (take_items(numbers, 4, 0, "parts", &rows->numbers) < 0) return -1;
    rows->has_numbers = 1;
    if (take_items(places, 8, 0, "places", &rows->places) < 0) return -1;
    rows->has_places = 1;
    return check_equal(rows->places.items, rows->numbers.items, "places");
}

/* Returns the part of row `at`, and its place in it, or NULL with an exception. `extra`: items beyond the rows. */
static inline const Part *part_of(const Rows *rows, int64_t at, int64_t extra, int64_t *place)
{
    int32_t number = load_i32(rows->numbers.data, at);
    *place = load_i64(rows->places.data, at);
    if (LIKELY(0 <= number && number < rows->count && 0 <= *place &&
               *place < rows->parts[number].values.items - extra))
        return &rows->parts[number];
    PyErr_Format(PyExc_IndexError, "row %lld of part %d was given, and it does not exist", (long long)*place, (int)number);
    return NULL;
}

static int copy_values(const Rows *rows, int64_t row_bytes, char *to)
{
    int64_t place;
    for (int64_t at = 0; at < rows->places.items; at++) {
        const Part *part = part_of(rows, at, 0, &place);
        if (part == NULL) return -1;
        if (row_bytes == 8) memcpy(to + at * 8, part->values.data + place * 8, 8);
        else memcpy(to + at * row_bytes, part->values.data + place * row_bytes, (size_t)row_bytes);
    }
    return 0;
}

/* gather_parts(parts, row_bytes, numbers: int32, places: int64) -> bytes: rows of a column of fixed width. */
static PyObject *gather_parts(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *parts, *numbers, *places, *result = NULL;
    long long row_bytes;
    Rows rows;
    if (!PyArg_ParseTuple(args, "O!LOO", &PyTuple_Type, &parts, &row_bytes, &numbers, &places)) return NULL;
    if (row_bytes < 1 || row_bytes > 1 << 20)
        return PyErr_Format(PyExc_ValueError, "rows of %lld bytes are not possible", row_bytes);
    if (take_rows(parts, numbers, places, row_bytes, 0, &rows) == 0) {
        if (rows.places.items > PY_SSIZE_T_MAX / row_bytes - 64) PyErr_NoMemory();
        else result = PyBytes_FromStringAndSize(NULL, rows.places.items * row_bytes);
        if (result != NULL && copy_values(&rows, row_bytes, PyBytes_AS_STRING(result)) < 0) Py_CLEAR(result);
    }
    release_rows(&rows);
    return result;
}

typedef struct {
    const char *from;
    int64_t size;
} Text;

/* Finds all texts and writes where each begins among the chosen; returns their bytes, or -1 with an exception. */
static int64_t find_texts(const Rows *rows, int is_large, Text *texts, char *to_offsets)
{
    int64_t filled = 0, place, count = rows->places.items;
    for (int64_t at = 0; at < count; at++) {
        const Part *part = part_of(rows, at, 1, &place);
        if (part == NULL) return -1;
        const char *offsets = part->values.data;
        int64_t begin = is_large ? load_i64(offsets, place) : load_i32(offsets, place);
        int64_t end = is_large ? load_i64(offsets, place + 1) : load_i32(offsets, place + 1);
        if (!LIKELY(0 <= begin && begin <= end && end <= part->data.items)) {
            PyErr_Format(PyExc_ValueError, "text %lld lies at %lld to %lld in %lld bytes", (long long)place,
                         (long long)begin, (long long)end, (long long)part->data.items);
            return -1;
        }
        texts[at] = (Text){part->data.data + begin, end - begin};
        if (is_large) store_i64(to_offsets, at, filled);
        else store_i32(to_offsets, at, (int32_t)filled);
        if (end - begin > PY_SSIZE_T_MAX / 2 - filled) { PyErr_NoMemory(); return -1; }
        filled += end - begin;
        if (!is_large && filled > INT32_MAX) {
            PyErr_Format(PyExc_OverflowError, "%lld bytes of texts are too many for 32-bit offsets", (long long)filled);
            return -1;
        }
    }
    if (is_large) store_i64(to_offsets, count, filled);
    else store_i32(to_offsets, count, (int32_t)filled);
    return filled;
}

static PyObject *copy_texts(const Rows *rows, int is_large)
{
    int64_t count = rows->places.items, size = -1;
    PyObject *data = NULL, *pair = NULL, *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (is_large ? 8 : 4));
    Text *texts = PyMem_RawMalloc((size_t)count * sizeof(Text) + 1);
    if (texts == NULL) PyErr_NoMemory();
    else if (offsets != NULL) size = find_texts(rows, is_large, texts, PyBytes_AS_STRING(offsets));
    if (size >= 0 && (data = PyBytes_FromStringAndSize(NULL, size)) != NULL) {
        char *to = PyBytes_AS_STRING(data);
        for (int64_t at = 0; at < count; at++) {
            if (at + 8 < count) FETCH(texts[at + 8].from);
            memcpy(to, texts[at].from, (size_t)texts[at].size);
            to += texts[at].size;
        }
        pair = PyTuple_Pack(2, offsets, data);
    }
    PyMem_RawFree(texts);
    Py_XDECREF(offsets);
    Py_XDECREF(data);
    return pair;
}

/* gather_text_parts(parts of (offsets, data), is_large, numbers: int32, places: int64) -> (offsets, data). */
static PyObject *gather_text_parts(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *parts, *numbers, *places, *result = NULL;
    int is_large;
    Rows rows;
    if (!PyArg_ParseTuple(args, "O!pOO", &PyTuple_Type, &parts, &is_large, &numbers, &places)) return NULL;
    if (take_rows(parts, numbers, places, is_large ? 8 : 4, 1, &rows) == 0) result = copy_texts(&rows, is_large);
    release_rows(&rows);
    return result;
}

PyMethodDef gather_parts_methods[] = {
    {"gather_parts", gather_parts, METH_VARARGS, "gather_parts(parts, row_bytes, numbers, places) -> bytes"},
    {"gather_text_parts", gather_text_parts, METH_VARARGS, "gather_text_parts(parts, is_large, numbers, places)"},
    {NULL, NULL, 0, NULL},
};
