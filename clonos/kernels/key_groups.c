/* key_groups(columns, width, groups): the key group of each row, from the bytes of its key as clonos.core.values encodes it.
 *
 * A key of one column is encoded as its value: "i" and a big-endian number of as few bytes as hold it and its sign, "s" and
 * the text in UTF-8, "b" and the bytes, "T", "F" or "N". A key of several is "t", then each value after its length. The
 * group is the XXH3 hash of these bytes modulo the number of groups. Longer keys get -1: Python computes their groups. */

#include "native.h"

#define KEY_BYTES_MAX 128 /* the hash of longer inputs works in other ways */
#define COLUMNS_MAX 16

typedef struct {
    char tag;       /* i, u (unsigned), s, b, or o for bools of one byte */
    Items values;   /* 8 bytes a number, 1 a bool, or offsets of texts */
    Items data;     /* of texts */
    Items valid;    /* a byte per row */
    int is_large, has_data, has_valid;
} Column;

/* ------------------------------------------------------------------ XXH3, 64 bits, without a seed */

static const unsigned char secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* The hash reads words in the order of the bytes on little-endian machines; others build no extension (setup.py). */
static inline uint64_t word(const unsigned char *from) { return load_u64((const char *)from); }
static inline uint64_t half(const unsigned char *from) { return load_u32((const char *)from); }
static inline uint64_t rotated(uint64_t bits, int by) { return (bits << by) | (bits >> (64 - by)); }

static inline uint64_t reversed(uint64_t bits)
{
    bits = ((bits & 0x00FF00FF00FF00FFu) << 8) | ((bits >> 8) & 0x00FF00FF00FF00FFu);
    bits = ((bits & 0x0000FFFF0000FFFFu) << 16) | ((bits >> 16) & 0x0000FFFF0000FFFFu);
    return (bits << 32) | (bits >> 32);
}

/* Returns the product's high and low half, folded. */
static inline uint64_t folded(uint64_t a, uint64_t b)
{
    uint64_t a_low = a & 0xFFFFFFFFu, a_high = a >> 32, b_low = b & 0xFFFFFFFFu, b_high = b >> 32;
#ifdef __SIZEOF_INT128__
    (void)a_low, (void)a_high, (void)b_low, (void)b_high;
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t low = a_low * b_low, cross = (low >> 32) + a_high * b_low;
    uint64_t middle = (cross & 0xFFFFFFFFu) + a_low * b_high;
    uint64_t high = a_high * b_high + (cross >> 32) + (middle >> 32);
    return ((middle << 32) | (low & 0xFFFFFFFFu)) ^ high;
#endif
}

static inline uint64_t mixed(const unsigned char *from, const unsigned char *with)
{
    return folded(word(from) ^ word(with), word(from + 8) ^ word(with + 8));
}

static inline uint64_t finished(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= 0x165667919E3779F9u;
    return hash ^ (hash >> 32);
}

/* Returns the hash of the first 1 to 8 bytes of a word. */
static inline uint64_t xxh3_of_word(uint64_t bytes, uint64_t size)
{
    if (size > 3) {
        uint64_t last = (bytes >> (8 * (size - 4))) & 0xFFFFFFFFu;
        uint64_t hash = (last + (bytes << 32)) ^ (word(secret + 8) ^ word(secret + 16));
        hash ^= rotated(hash, 49) ^ rotated(hash, 24);
        hash *= 0x9FB21C651E98DF25u;
        hash ^= (hash >> 35) + size;
        hash *= 0x9FB21C651E98DF25u;
        return hash ^ (hash >> 28);
    }
    uint64_t first = bytes & 0xff, middle = (bytes >> (8 * (size >> 1))) & 0xff, last = (bytes >> (8 * (size - 1))) & 0xff;
    uint64_t hash = ((first << 16) | (middle << 24) | last | (size << 8)) ^ (half(secret) ^ half(secret + 4));
    hash ^= hash >> 33;
    hash *= 0xC2B2AE3D27D4EB4Fu;
    hash ^= hash >> 29;
    hash *= 0x165667B19E3779F9u;
    return hash ^ (hash >> 32);
}

/* Returns the hash of 1 to 128 bytes. */
static uint64_t xxh3(const unsigned char *from, uint64_t size)
{
    if (size > 16) {
        uint64_t sum = size * 0x9E3779B185EBCA87u;
        if (size > 32) {
            if (size > 64) {
                if (size > 96) sum += mixed(from + 48, secret + 96) + mixed(from + size - 64, secret + 112);
                sum += mixed(from + 32, secret + 64) + mixed(from + size - 48, secret + 80);
            }
            sum += mixed(from + 16, secret + 32) + mixed(from + size - 32, secret + 48);
        }
        return finished(sum + mixed(from, secret) + mixed(from + size - 16, secret + 16));
    }
    if (size > 8) {
        uint64_t low = word(from) ^ (word(secret + 24) ^ word(secret + 32));
        uint64_t high = word(from + size - 8) ^ (word(secret + 40) ^ word(secret + 48));
        return finished(size + reversed(low) + high + folded(low, high));
    }
    uint64_t bytes = 0;
    memcpy(&bytes, from, size);
    return xxh3_of_word(bytes, size);
}

/* ------------------------------------------------------------------ the bytes of keys */

static inline int bit_length(uint64_t bits)
{
#if defined(__GNUC__) || defined(__clang__)
    return bits ? 64 - __builtin_clzll(bits) : 0;
#else
    int length = 0;
    for (; bits; bits >>= 1) length++;
    return length;
#endif
}

static inline int64_t put_number(unsigned char *to, uint64_t bits, int is_negative)
{
    int length = bit_length(is_negative ? 0 - bits : bits);
    int bytes = length / 8 + 1;
    to[0] = 'i';
    if (bytes > 8) { to[1] = is_negative ? 0xff : 0; to++; }
    uint64_t shifted = reversed(bytes < 8 ? bits << (64 - 8 * bytes) : bits); /* in big-endian order, then arbitrary bytes */
    memcpy(to + 1, &shifted, 8);
    return 1 + bytes;
}

/* Puts a value of a row; returns its bytes, 0 if it does not fit, or -1 with an exception. */
static int64_t put_value(const Column *column, int64_t row, unsigned char *to, int64_t room)
{
    if (room < 10) return 0; /* a number writes so many bytes, whatever it needs */
    if (column->has_valid && !column->valid.data[row]) { to[0] = 'N'; return 1; }
    if (column->tag == 'i' || column->tag == 'u') {
        int64_t number = load_i64(column->values.data, row);
        return put_number(to, (uint64_t)number, column->tag == 'i' && number < 0);
    }
    if (column->tag == 'o') { to[0] = column->values.data[row] ? 'T' : 'F'; return 1; }
    int64_t begin = column->is_large ? load_i64(column->values.data, row) : load_i32(column->values.data, row);
    int64_t end = column->is_large ? load_i64(column->values.data, row + 1) : load_i32(column->values.data, row + 1);
    if (!LIKELY(0 <= begin && begin <= end && end <= column->data.items)) {
        PyErr_Format(PyExc_ValueError, "text %lld lies at %lld to %lld in %lld bytes", (long long)row, (long long)begin,
                     (long long)end, (long long)column->data.items);
        return -1;
    }
    if (end - begin >= room) return 0;
    to[0] = (unsigned char)column->tag;
    if (end > begin) memcpy(to + 1, column->data.data + begin, (size_t)(end - begin));
    return 1 + end - begin;
}

/* Puts the key of a row; returns as `put_value`. */
static int64_t put_key(const Column *columns, Py_ssize_t count, int64_t row, unsigned char *to)
{
    if (count == 1) return put_value(columns, row, to, KEY_BYTES_MAX);
    int64_t end = 1;
    to[0] = 't';
    for (Py_ssize_t number = 0; number < count; number++) {
        int64_t size = end < KEY_BYTES_MAX ? put_value(&columns[number], row, to + end + 1, KEY_BYTES_MAX - end - 1) : 0;
        if (size <= 0) return size;
        to[end] = (unsigned char)size; /* below 255, which announces a longer length */
        end += 1 + size;
    }
    return end;
}

static inline int32_t group_of(uint64_t hash, uint64_t width)
{
    return (int32_t)(width & (width - 1) ? hash % width : hash & (width - 1));
}

static int fill_groups(const Column *columns, Py_ssize_t count, uint64_t width, const Items *groups)
{
    unsigned char key[KEY_BYTES_MAX];
    for (int64_t row = 0; row < groups->items; row++) {
        int64_t size = put_key(columns, count, row, key);
        if (size < 0) return -1;
        store_i32(groups->data, row, size ? group_of(xxh3(key, (uint64_t)size), width) : -1);
    }
    return 0;
}

/* The same for numbers without nulls, the most frequent keys: most of them are hashed without a copy in memory. */
static void fill_groups_of_numbers(const Column *column, uint64_t width, const Items *groups)
{
    unsigned char key[16];
    for (int64_t row = 0; row < groups->items; row++) {
        int64_t number = load_i64(column->values.data, row);
        int is_negative = column->tag == 'i' && number < 0;
        uint64_t bits = (uint64_t)number, hash;
        int bytes = bit_length(is_negative ? 0 - bits : bits) / 8 + 1;
        if (bytes < 8) {
            hash = xxh3_of_word('i' | reversed(bits << (64 - 8 * bytes)) << 8, 1 + (uint64_t)bytes);
        } else {
            hash = xxh3(key, (uint64_t)put_number(key, bits, is_negative));
        }
        store_i32(groups->data, row, group_of(hash, width));
    }
}

int32_t group_of_object(PyObject *object, uint64_t width)
{
    unsigned char key[KEY_BYTES_MAX + 16];
    if (PyUnicode_CheckExact(object)) {
        Py_ssize_t length = PyUnicode_GET_LENGTH(object);
        if (!PyUnicode_IS_COMPACT_ASCII(object) || length >= KEY_BYTES_MAX) return -1;
        key[0] = 's';
        memcpy(key + 1, PyUnicode_1BYTE_DATA(object), (size_t)length);
        return group_of(xxh3(key, 1 + (uint64_t)length), width);
    }
    if (!PyLong_CheckExact(object)) return -1;
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) return -1;
    return group_of(xxh3(key, (uint64_t)put_number(key, (uint64_t)number, number < 0)), width);
}

/* ------------------------------------------------------------------ columns from Python */

static void release_column(Column *column)
{
    release_items(&column->values);
    if (column->has_data) release_items(&column->data);
    if (column->has_valid) release_items(&column->valid);
}

/* Takes (tag, values, data or None, is_large, valid or None); returns 0, or -1 with an exception. */
static int take_column(PyObject *description, int64_t rows, Column *column)
{
    int tag;
    PyObject *values, *data, *valid;
    memset(column, 0, sizeof(*column));
    if (!PyTuple_Check(description)) { PyErr_SetString(PyExc_TypeError, "a column is a tuple"); return -1; }
    if (!PyArg_ParseTuple(description, "COOpO", &tag, &values, &data, &column->is_large, &valid)) return -1;
    int is_text = tag == 's' || tag == 'b', is_number = tag == 'i' || tag == 'u';
    if (!is_text && !is_number && tag != 'o') { PyErr_SetString(PyExc_ValueError, "the tag of a column is unknown"); return -1; }
    if (is_text == (data == Py_None)) { PyErr_SetString(PyExc_ValueError, "texts have data, and others none"); return -1; }
    column->tag = (char)tag;
    if (take_items(values, is_text ? (column->is_large ? 8 : 4) : (is_number ? 8 : 1), 0, "values", &column->values) < 0)
        return -1;
    if (check_equal(column->values.items, rows + is_text, "values") < 0) goto failed;
    if (is_text) {
        if (take_items(data, 1, 0, "data", &column->data) < 0) goto failed;
        column->has_data = 1;
    }
    if (valid != Py_None) {
        if (take_items(valid, 1, 0, "valid", &column->valid) < 0) goto failed;
        column->has_valid = 1;
        if (check_equal(column->valid.items, rows, "valid") < 0) goto failed;
    }
    return 0;
failed:
    release_column(column);
    return -1;
}

static PyObject *key_groups(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *descriptions, *groups_object, *result = NULL;
    long long width;
    Items groups;
    Column columns[COLUMNS_MAX];
    Py_ssize_t taken = 0;
    if (!PyArg_ParseTuple(args, "O!LO", &PyTuple_Type, &descriptions, &width, &groups_object)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(descriptions);
    if (count < 1 || count > COLUMNS_MAX || width < 1 || width > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "%zd columns and %lld groups are not possible", count, width);
    if (take_items(groups_object, 4, 1, "groups", &groups) < 0) return NULL;
    while (taken < count && take_column(PyTuple_GET_ITEM(descriptions, taken), groups.items, &columns[taken]) == 0) taken++;
    int is_number = taken == 1 && (columns->tag == 'i' || columns->tag == 'u') && !columns->has_valid;
    if (taken == count && count == 1 && is_number) {
        fill_groups_of_numbers(columns, (uint64_t)width, &groups);
        result = Py_NewRef(Py_None);
    } else if (taken == count && fill_groups(columns, count, (uint64_t)width, &groups) == 0) {
        result = Py_NewRef(Py_None);
    }
    while (taken > 0) release_column(&columns[--taken]);
    release_items(&groups);
    return result;
}

PyMethodDef key_groups_methods[] = {
    {"key_groups", key_groups, METH_VARARGS, "key_groups(columns, width, groups): -1 for a key of more than 127 bytes"},
    {NULL, NULL, 0, NULL},
};
