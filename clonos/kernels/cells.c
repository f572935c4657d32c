/* Rows as columns of msgpack, and back. Nothing here runs Python code of the user: cells are exactly int, float and str,
 * and everything else is left to clonos/core/values/rows.py, whose encoding this is. Bytes may come from anyone. */

#include "native.h"

/* --- cells as msgpack */

typedef struct {
    PyObject *bytes;
    char *at, *end;
} Packed;

static int begin_packed(Packed *packed, Py_ssize_t cells, Py_ssize_t cell_bytes)
{
    packed->bytes = PyBytes_FromStringAndSize(NULL, 5 + cells * cell_bytes);
    if (packed->bytes == NULL) return -1;
    packed->at = PyBytes_AS_STRING(packed->bytes);
    packed->end = packed->at + 5 + cells * cell_bytes;
    return 0;
}

/* Makes room for `wanted` more bytes, of which `wanted` and then some follow for the cells after. */
static int reserve(Packed *packed, Py_ssize_t wanted)
{
    if (LIKELY(packed->end - packed->at >= wanted)) return 0;
    Py_ssize_t used = packed->at - PyBytes_AS_STRING(packed->bytes);
    Py_ssize_t size = 2 * used + wanted;
    if (_PyBytes_Resize(&packed->bytes, size) < 0) return -1;
    packed->at = PyBytes_AS_STRING(packed->bytes) + used;
    packed->end = PyBytes_AS_STRING(packed->bytes) + size;
    return 0;
}

static inline char *put_big_endian(char *at, uint64_t word, int bytes)
{
    for (int place = bytes - 1; place >= 0; place--) *at++ = (char)(word >> (8 * place));
    return at;
}

static inline char *put_tagged(char *at, unsigned char tag, uint64_t word, int bytes)
{
    *at++ = (char)tag;
    return put_big_endian(at, word, bytes);
}

static char *put_length(char *at, uint64_t length, int is_text)
{
    if (is_text && length < 32) return put_big_endian(at, 0xa0 | length, 1);
    if (is_text && length < 256) return put_tagged(at, 0xd9, length, 1);
    if (!is_text && length < 16) return put_big_endian(at, 0x90 | length, 1);
    if (length < 65536) return put_tagged(at, is_text ? 0xda : 0xdc, length, 2);
    return put_tagged(at, is_text ? 0xdb : 0xdd, length, 4);
}

static char *put_int(char *at, int64_t number)
{
    if (number >= 0) {
        if (number < 128) return put_big_endian(at, (uint64_t)number, 1);
        if (number < 256) return put_tagged(at, 0xcc, (uint64_t)number, 1);
        if (number < 65536) return put_tagged(at, 0xcd, (uint64_t)number, 2);
        if (number <= UINT32_MAX) return put_tagged(at, 0xce, (uint64_t)number, 4);
        return put_tagged(at, 0xcf, (uint64_t)number, 8);
    }
    if (number >= -32) return put_big_endian(at, (uint64_t)number, 1);
    if (number >= INT8_MIN) return put_tagged(at, 0xd0, (uint64_t)number, 1);
    if (number >= INT16_MIN) return put_tagged(at, 0xd1, (uint64_t)number, 2);
    if (number >= INT32_MIN) return put_tagged(at, 0xd2, (uint64_t)number, 4);
    return put_tagged(at, 0xd3, (uint64_t)number, 8);
}

enum { NO_KIND = 0, TEXTS = 1, INTS = 2, FLOATS = 3 }; /* as in clonos/core/values/rows.py */

static int kind_of(PyObject *cell)
{
    if (PyLong_CheckExact(cell)) return INTS;
    if (PyUnicode_CheckExact(cell)) return TEXTS;
    return PyFloat_CheckExact(cell) ? FLOATS : NO_KIND;
}

/* Appends a cell. Returns 1, 0 if the cell is not of the kind or has no such encoding, or -1 with an exception. */
static int pack_cell(Packed *packed, int kind, PyObject *cell)
{
    if (kind == INTS) {
        int overflow;
        if (!PyLong_CheckExact(cell)) return 0;
        int64_t number = PyLong_AsLongLongAndOverflow(cell, &overflow);
        if (overflow) return 0;
        if (reserve(packed, 9) < 0) return -1;
        packed->at = put_int(packed->at, number);
    } else if (kind == TEXTS) {
        const char *text;
        Py_ssize_t length;
        if (!PyUnicode_CheckExact(cell)) return 0;
        if (PyUnicode_IS_COMPACT_ASCII(cell)) {
            text = (const char *)PyUnicode_1BYTE_DATA(cell);
            length = PyUnicode_GET_LENGTH(cell);
        } else if ((text = PyUnicode_AsUTF8AndSize(cell, &length)) == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
            PyErr_Clear();
            return 0;
        }
        if (length > UINT32_MAX) return 0;
        if (reserve(packed, 5 + length) < 0) return -1;
        packed->at = put_length(packed->at, (uint64_t)length, 1);
        memcpy(packed->at, text, (size_t)length);
        packed->at += length;
    } else {
        uint64_t word;
        if (!PyFloat_CheckExact(cell)) return 0;
        double number = PyFloat_AS_DOUBLE(cell);
        memcpy(&word, &number, 8);
        if (reserve(packed, 9) < 0) return -1;
        packed->at = put_tagged(packed->at, 0xcb, word, 8);
    }
    return 1;
}

/* Returns (kind, bytes) of cells, or None: items[i] itself, or its cell `column` if that is not negative. */
static PyObject *packed_cells(PyObject **items, Py_ssize_t count, Py_ssize_t column)
{
    Packed packed;
    if (count == 0) Py_RETURN_NONE;
    int kind = kind_of(column < 0 ? items[0] : PyTuple_GET_ITEM(items[0], column)), is_packed = 1;
    if (kind == NO_KIND) Py_RETURN_NONE;
    if (begin_packed(&packed, count, kind == INTS ? 3 : 9) < 0) return NULL;
    packed.at = put_length(packed.at, (uint64_t)count, 0);
    for (Py_ssize_t index = 0; index < count && is_packed == 1; index++)
        is_packed = pack_cell(&packed, kind, column < 0 ? items[index] : PyTuple_GET_ITEM(items[index], column));
    if (is_packed == 1 && _PyBytes_Resize(&packed.bytes, packed.at - PyBytes_AS_STRING(packed.bytes)) == 0)
        return Py_BuildValue("(iN)", kind, packed.bytes);
    Py_XDECREF(packed.bytes);
    if (is_packed == 0) Py_RETURN_NONE;
    return NULL;
}

/* pack_cells(cells): returns the kind of cells that are all texts, all ints or all floats, and their msgpack; None for
 * others, for an int beyond 64 bits, and for a text with a lone surrogate. */
static PyObject *pack_cells(PyObject *Py_UNUSED(module), PyObject *cells)
{
    if (!PyList_CheckExact(cells) && !PyTuple_CheckExact(cells)) Py_RETURN_NONE;
    return packed_cells(PySequence_Fast_ITEMS(cells), PySequence_Fast_GET_SIZE(cells), -1);
}

/* pack_tuples(rows): returns for each column of tuples of one length what pack_cells returns, or a list of the cells
 * where that is None; None if the lengths differ. */
static PyObject *pack_tuples(PyObject *Py_UNUSED(module), PyObject *rows)
{
    if (!PyList_CheckExact(rows) && !PyTuple_CheckExact(rows)) Py_RETURN_NONE;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(rows);
    PyObject **items = PySequence_Fast_ITEMS(rows);
    if (count == 0 || !PyTuple_CheckExact(items[0])) Py_RETURN_NONE;
    Py_ssize_t width = PyTuple_GET_SIZE(items[0]);
    for (Py_ssize_t index = 1; index < count; index++)
        if (!PyTuple_CheckExact(items[index]) || PyTuple_GET_SIZE(items[index]) != width) Py_RETURN_NONE;
    PyObject *columns = PyList_New(width);
    for (Py_ssize_t column = 0; columns != NULL && column < width; column++) {
        PyObject *found = packed_cells(items, count, column);
        if (found == Py_None) {
            Py_DECREF(found);
            found = PyList_New(count);
            for (Py_ssize_t index = 0; found != NULL && index < count; index++)
                PyList_SET_ITEM(found, index, Py_NewRef(PyTuple_GET_ITEM(items[index], column)));
        }
        if (found == NULL) Py_CLEAR(columns);
        else PyList_SET_ITEM(columns, column, found);
    }
    return columns;
}

/* --- keys in their rows */

/* Returns the cell at a place of a tuple, or the value at a place of a dict in its order; NULL if there is none. */
static PyObject *cell_at(PyObject *row, Py_ssize_t place)
{
    if (PyTuple_CheckExact(row)) return place < PyTuple_GET_SIZE(row) ? PyTuple_GET_ITEM(row, place) : NULL;
    PyObject *cell = NULL;
    Py_ssize_t position = 0;
    if (!PyDict_CheckExact(row)) return NULL;
    for (Py_ssize_t passed = 0; passed <= place; passed++)
        if (!PyDict_Next(row, &position, NULL, &cell)) return NULL;
    return cell;
}

/* Returns whether a cell is an int or a text as the key is. */
static int is_key(PyObject *cell, PyObject *key)
{
    int kind = kind_of(key);
    if (cell == NULL || (kind != INTS && kind != TEXTS) || kind_of(cell) != kind) return 0;
    if (cell == key) return 1;
    return kind == INTS ? PyObject_RichCompareBool(cell, key, Py_EQ) == 1 : PyUnicode_Compare(cell, key) == 0;
}

/* key_place(keys: list, rows: list or tuple): returns the first place at which all rows have their key, an int or a text;
 * None if there is none. Rows are tuples or dicts, all of one kind. */
static PyObject *key_place(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *keys, *rows;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &keys, &rows)) return NULL;
    if (!PyList_CheckExact(rows) && !PyTuple_CheckExact(rows)) Py_RETURN_NONE;
    Py_ssize_t count = PyList_GET_SIZE(keys), place = 0;
    PyObject **items = PySequence_Fast_ITEMS(rows); /* no code of the user runs below */
    if (count == 0 || PySequence_Fast_GET_SIZE(rows) != count) Py_RETURN_NONE;
    for (PyObject *cell; (cell = cell_at(items[0], place)) != NULL; place++) {
        Py_ssize_t row = 0;
        while (row < count && is_key(cell_at(items[row], place), PyList_GET_ITEM(keys, row))) row++;
        if (row == count) return PyLong_FromSsize_t(place);
    }
    Py_RETURN_NONE;
}

/* --- rows from columns of msgpack */

#define NODES_MAX 64
#define TUPLES 7 /* as in clonos/core/values/rows.py */
#define PLACE 14

/* A column: its cells in msgpack, or the number of columns after it that are its parts. Cells that are the ones at a place
 * of the tuples beside them have that place in `parts`. */
typedef struct {
    int kind;
    Py_ssize_t parts;
    const unsigned char *at, *end;
    int asked, found; /* short texts that were looked for among the known ones */
} Node;

static uint64_t take_big_endian(Node *node, int bytes)
{
    uint64_t word = 0;
    for (int place = 0; place < bytes; place++) word = word << 8 | *node->at++;
    return word;
}

/* Takes the head of an array. Returns its length, or -1. */
static Py_ssize_t take_count(Node *node)
{
    if (node->at == node->end) return -1;
    int tag = *node->at++, bytes = tag == 0xdc ? 2 : tag == 0xdd ? 4 : 0;
    if (bytes == 0) return (tag & 0xf0) == 0x90 ? tag & 0x0f : -1;
    return node->end - node->at < bytes ? -1 : (Py_ssize_t)take_big_endian(node, bytes);
}

/* The functions that take a cell return NULL without an exception if the bytes are none of this kind. */
static PyObject *take_int(Node *node)
{
    if (node->at == node->end) return NULL;
    int tag = *node->at++;
    if (tag < 0x80) return PyLong_FromLong(tag);
    if (tag >= 0xe0) return PyLong_FromLong(tag - 0x100);
    if (tag < 0xcc || tag > 0xd3) return NULL;
    int bytes = 1 << (tag & 3);
    if (node->end - node->at < bytes) return NULL;
    uint64_t word = take_big_endian(node, bytes);
    if (tag < 0xd0) return PyLong_FromUnsignedLongLong(word);
    uint64_t sign = (uint64_t)1 << (8 * bytes - 1);
    return PyLong_FromLongLong((int64_t)((word ^ sign) - sign));
}

static PyObject *take_float(Node *node)
{
    double number;
    if (node->end - node->at < 9 || *node->at++ != 0xcb) return NULL;
    uint64_t word = take_big_endian(node, 8);
    memcpy(&number, &word, 8);
    return PyFloat_FromDouble(number);
}

/* --- known texts
 *
 * Short texts often come again, such as keys. The object of the last one at each place is used again: it has its hash, and
 * the entries of tables that have it are found without a comparison. A column whose texts are mostly new is left alone. */

#define KNOWN_TEXTS (1 << 14)
#define KNOWN_BYTES_MAX 32
#define TRIAL 256 /* texts of a column after which it is decided, and of which a quarter has to be known */

static struct {
    uint64_t hash;
    PyObject *text;
} known_texts[KNOWN_TEXTS];

static inline uint64_t hash_of(const unsigned char *bytes, Py_ssize_t length)
{
    uint64_t hash = (uint64_t)length, last = 0;
    for (; length >= 8; bytes += 8, length -= 8) hash = mix(hash ^ load_u64((const char *)bytes));
    memcpy(&last, bytes, (size_t)length);
    return mix(hash ^ last);
}

/* Returns a text of bytes in UTF-8, or NULL with an exception. */
static PyObject *text_of(Node *node, const unsigned char *bytes, Py_ssize_t length)
{
    if (length > KNOWN_BYTES_MAX || (node->asked >= TRIAL && node->found < node->asked / 4))
        return PyUnicode_DecodeUTF8((const char *)bytes, length, NULL);
    uint64_t hash = hash_of(bytes, length);
    PyObject **place = &known_texts[hash % KNOWN_TEXTS].text, *text = *place;
    node->asked++;
    if (text != NULL && known_texts[hash % KNOWN_TEXTS].hash == hash && PyUnicode_GET_LENGTH(text) == length &&
        memcmp(PyUnicode_1BYTE_DATA(text), bytes, (size_t)length) == 0) {
        node->found++;
        return Py_NewRef(text);
    }
    text = PyUnicode_DecodeUTF8((const char *)bytes, length, NULL);
    if (text != NULL && PyUnicode_IS_COMPACT_ASCII(text)) {
        known_texts[hash % KNOWN_TEXTS].hash = hash;
        Py_XSETREF(*place, Py_NewRef(text));
    }
    return text;
}

static PyObject *take_text(Node *node)
{
    if (node->at == node->end) return NULL;
    int tag = *node->at++, bytes = tag == 0xd9 ? 1 : tag == 0xda ? 2 : tag == 0xdb ? 4 : 0;
    if ((bytes == 0 && (tag & 0xe0) != 0xa0) || node->end - node->at < bytes) return NULL;
    Py_ssize_t length = bytes ? (Py_ssize_t)take_big_endian(node, bytes) : tag & 0x1f;
    if (node->end - node->at < length) return NULL;
    PyObject *text = text_of(node, node->at, length);
    node->at += length;
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) PyErr_Clear();
    return text;
}

/* Makes the next cell of the column at *place, and moves *place after it and its parts. */
static PyObject *take_cell(Node *nodes, int *place)
{
    Node *node = &nodes[(*place)++];
    if (node->kind == INTS) return take_int(node);
    if (node->kind == TEXTS) return take_text(node);
    if (node->kind == FLOATS) return take_float(node);
    PyObject *row = PyTuple_New(node->parts);
    Py_ssize_t part = 0, key_place = -1;
    if (nodes[*place].kind == PLACE) {
        key_place = nodes[(*place)++].parts;
        part = 1;
    }
    for (; row != NULL && part < node->parts; part++) {
        PyObject *cell = take_cell(nodes, place);
        if (cell == NULL) Py_CLEAR(row);
        else PyTuple_SET_ITEM(row, part, cell);
    }
    if (row != NULL && key_place >= 0)
        PyTuple_SET_ITEM(row, 0, Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(row, 1), key_place)));
    /* Nothing in it can be part of a cycle, so the collector need not know it; it would find that out itself. */
    if (row != NULL) PyObject_GC_UnTrack(row);
    return row;
}

/* Lists the columns of a specification, (kind, bytes) or (TUPLES, parts), each before its parts.
 * Returns 1, 0 if it cannot be read here, or -1 with an exception. */
static int list_nodes(PyObject *given, Node *nodes, int *count)
{
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 2 || *count == NODES_MAX) return 0;
    Node *node = &nodes[(*count)++];
    PyObject *content = PyTuple_GET_ITEM(given, 1);
    node->asked = node->found = 0;
    node->kind = (int)PyLong_AsLong(PyTuple_GET_ITEM(given, 0));
    if (node->kind == -1 && PyErr_Occurred()) return -1;
    if (node->kind == TUPLES) {
        if (!PyTuple_CheckExact(content) || PyTuple_GET_SIZE(content) == 0) return 0;
        node->parts = PyTuple_GET_SIZE(content);
        for (Py_ssize_t part = 0; part < node->parts; part++) {
            Node *listed = &nodes[*count];
            int found = list_nodes(PyTuple_GET_ITEM(content, part), nodes, count);
            if (found <= 0) return found;
            if (listed->kind == PLACE && (part > 0 || node->parts != 2)) return 0;
        }
        Node *first = node + 1, *second = node + 2;
        if (first->kind == PLACE) return second->kind == TUPLES && first->parts >= 0 && first->parts < second->parts;
        return 1;
    }
    if (node->kind == PLACE) {
        node->parts = PyLong_AsSsize_t(content);
        return node->parts == -1 && PyErr_Occurred() ? -1 : 1;
    }
    if (!PyBytes_CheckExact(content)) return 0;
    node->at = (const unsigned char *)PyBytes_AS_STRING(content);
    node->end = node->at + PyBytes_GET_SIZE(content);
    return node->kind == INTS || node->kind == TEXTS || node->kind == FLOATS;
}

/* The place in columns up to which their rows were made. `nodes` point into the bytes of `given`. */
typedef struct {
    PyObject *given;
    Py_ssize_t left; /* rows that are not made yet; -1 if a cell was malformed */
    int count;
    Node nodes[];
} Reader;

static const char READER[] = "clonos.kernels._native.Reader";

static void close_reader(PyObject *capsule)
{
    Reader *reader = PyCapsule_GetPointer(capsule, READER);
    Py_DECREF(reader->given);
    PyMem_Free(reader);
}

/* open_rows(specification) -> (reader, count): a reader of the rows of columns, for next_rows, and how many they are; None
 * if the columns have other kinds or other lengths. */
static PyObject *open_rows(PyObject *Py_UNUSED(module), PyObject *given)
{
    Node nodes[NODES_MAX];
    int count = 0, found = list_nodes(given, nodes, &count);
    if (found < 0) return NULL;
    Py_ssize_t rows_count = -1;
    found = found && nodes[0].kind != PLACE;
    for (int place = 0; found && place < count; place++) {
        if (nodes[place].kind == TUPLES || nodes[place].kind == PLACE) continue;
        Py_ssize_t cells = take_count(&nodes[place]);
        /* Each cell has at least a byte, so a wrong length allocates no more than the bytes that came. */
        found = cells >= 0 && cells <= nodes[place].end - nodes[place].at && (rows_count < 0 || cells == rows_count);
        rows_count = cells;
    }
    if (!found) Py_RETURN_NONE;
    Reader *reader = PyMem_Malloc(sizeof(Reader) + (size_t)count * sizeof(Node));
    if (reader == NULL) return PyErr_NoMemory();
    reader->left = rows_count;
    reader->count = count;
    memcpy(reader->nodes, nodes, (size_t)count * sizeof(Node));
    PyObject *capsule = PyCapsule_New(reader, READER, close_reader);
    if (capsule == NULL) {
        PyMem_Free(reader);
        return NULL;
    }
    reader->given = Py_NewRef(given);
    return Py_BuildValue("(Nn)", capsule, rows_count);
}

/* Returns whether the columns end where the rows do. */
static int is_at_end(const Reader *reader)
{
    for (int place = 0; place < reader->count; place++) {
        const Node *node = &reader->nodes[place];
        if (node->kind != TUPLES && node->kind != PLACE && node->at != node->end) return 0;
    }
    return 1;
}

/* next_rows(reader, count): returns the next rows, each with its cells at once, so that they lie together in memory; None
 * if a cell of them or of earlier ones is malformed, or if something is left after the last one. */
static PyObject *next_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "On", &capsule, &count)) return NULL;
    Reader *reader = PyCapsule_GetPointer(capsule, READER);
    if (reader == NULL) return NULL;
    if (reader->left < 0) Py_RETURN_NONE;
    if (count < 0 || count > reader->left)
        return PyErr_Format(PyExc_IndexError, "%zd rows, and %zd are left", count, reader->left);
    PyObject *rows = PyList_New(count);
    for (Py_ssize_t index = 0; rows != NULL && index < count; index++) {
        int place = 0;
        PyObject *row = take_cell(reader->nodes, &place);
        if (row == NULL) Py_CLEAR(rows);
        else PyList_SET_ITEM(rows, index, row);
    }
    if (rows != NULL && count == reader->left && !is_at_end(reader)) Py_CLEAR(rows);
    reader->left = rows == NULL ? -1 : reader->left - count;
    if (rows == NULL && !PyErr_Occurred()) Py_RETURN_NONE;
    return rows;
}

PyMethodDef cells_methods[] = {
    {"pack_cells", pack_cells, METH_O, "Returns the kind and the msgpack of cells of one kind, or None."},
    {"pack_tuples", pack_tuples, METH_O, "Returns kind and msgpack of each column of tuples, or a list of its cells."},
    {"key_place", key_place, METH_VARARGS, "Returns the place at which all rows have their key, or None."},
    {"open_rows", open_rows, METH_O, "Returns a reader of columns of ints, texts, floats and tuples of them, or None."},
    {"next_rows", next_rows, METH_VARARGS, "next_rows(reader, count): makes the next rows, or None."},
    {NULL, NULL, 0, NULL},
};
