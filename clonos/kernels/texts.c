/* What texts of JSON have: keys, and numbers that a float may change. */

#include <float.h>
#include <stdint.h>

#include "native.h"

/* Colons after a quote or a blank. Those of keys are among them; others are in texts. */
#define COUNT_KEYS(name, type)                                                                                         \
    static Py_ssize_t name(const type *text, Py_ssize_t length)                                                        \
    {                                                                                                                  \
        Py_ssize_t count = 0;                                                                                          \
        for (Py_ssize_t at = 1; at < length; at++) {                                                                   \
            type before = text[at - 1];                                                                                \
            count += (text[at] == ':') & ((before == '"') | (before == ' ') | (before == '\t') | (before == '\r') |    \
                                          (before == '\n'));                                                           \
        }                                                                                                              \
        return count;                                                                                                  \
    }

COUNT_KEYS(keys_of_bytes, Py_UCS1)
COUNT_KEYS(keys_of_words, Py_UCS2)
COUNT_KEYS(keys_of_signs, Py_UCS4)

/* keys_max(lines: list of str): returns how many colons follow a quote or a blank in them. */
static PyObject *keys_max(PyObject *Py_UNUSED(module), PyObject *lines)
{
    Py_ssize_t count = 0;
    if (!PyList_CheckExact(lines)) return PyErr_Format(PyExc_TypeError, "lines are a list");
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(lines); index++) {
        PyObject *line = PyList_GET_ITEM(lines, index);
        if (!PyUnicode_Check(line)) return PyErr_Format(PyExc_TypeError, "a line is a str");
        Py_ssize_t length = PyUnicode_GET_LENGTH(line);
        if (PyUnicode_KIND(line) == PyUnicode_1BYTE_KIND) count += keys_of_bytes(PyUnicode_1BYTE_DATA(line), length);
        else if (PyUnicode_KIND(line) == PyUnicode_2BYTE_KIND) count += keys_of_words(PyUnicode_2BYTE_DATA(line), length);
        else count += keys_of_signs(PyUnicode_4BYTE_DATA(line), length);
    }
    return PyLong_FromSsize_t(count);
}

#define DIGITS_HELD 15
#define RUN (DIGITS_HELD + 1)
#define NUMBER_MAX 320
#define NUMBER_USUAL 280

static int is_part(Py_UCS4 sign) { return (sign >= '0' && sign <= '9') || sign == '.'; }

/* Copies the exponent at a place, with at most six characters; returns how many. */
static Py_ssize_t exponent_at(int kind, const void *text, Py_ssize_t length, Py_ssize_t place, char *copy)
{
    Py_ssize_t size = 0;
    copy[size++] = 'e';
    place++;
    if (place < length && (PyUnicode_READ(kind, text, place) == '-' || PyUnicode_READ(kind, text, place) == '+'))
        copy[size++] = (char)PyUnicode_READ(kind, text, place++);
    while (place < length && size < 6 && PyUnicode_READ(kind, text, place) >= '0' &&
           PyUnicode_READ(kind, text, place) <= '9')
        copy[size++] = (char)PyUnicode_READ(kind, text, place++);
    return size;
}

/* Returns whether a float, written with as many digits, has other ones. */
static int has_other_digits(const char *number, const char *digits, Py_ssize_t count)
{
    double value = PyOS_string_to_double(number, NULL, NULL);
    char *written = value == -1.0 && PyErr_Occurred() ? NULL : PyOS_double_to_string(value, 'e', (int)count - 1, 0, NULL);
    if (written == NULL) {
        PyErr_Clear();
        return 1;
    }
    Py_ssize_t same = 0;
    for (const char *sign = written; *sign && *sign != 'e' && same < count; sign++) {
        if (*sign == '.') continue;
        if (*sign != digits[same]) break;
        same++;
    }
    PyMem_Free(written);
    return same < count;
}

#if LDBL_MANT_DIG >= 64
#define POWERS 28
#define QUICK_DIGITS 17

/* Returns whether the float of digits with a point is surely within half a unit of the last digit. A long double has the
   power of ten exactly, and the quotient with an error of at most 0.006 units. */
static int is_surely_held(const char *digits, Py_ssize_t count, Py_ssize_t decimals)
{
    static const long double powers[POWERS] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                                               1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                                               1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    if (count > QUICK_DIGITS || decimals < 0 || decimals >= POWERS) return 0;
    uint64_t number = 0;
    for (Py_ssize_t at = 0; at < count; at++) number = number * 10 + (uint64_t)(digits[at] - '0');
    long double exact = (long double)number / powers[decimals], error = exact - (long double)(double)exact;
    return (error < 0 ? -error : error) * powers[decimals] < 0.48L;
}
#else
static int is_surely_held(const char *Py_UNUSED(digits), Py_ssize_t Py_UNUSED(count), Py_ssize_t Py_UNUSED(decimals))
{
    return 0;
}
#endif

/* Returns whether a float may change the number around a place, if it has a point or an exponent. ``*at`` becomes the
   end of its digits. A number that is very long, or whose exponent has three digits, counts as changed. */
static int is_rounded(int kind, const void *text, Py_ssize_t length, Py_ssize_t *at)
{
    char number[NUMBER_MAX + 8], digits[NUMBER_MAX + 1];
    Py_ssize_t begin = *at, end = *at, size = 0, count = 0, points = 0, decimals = 0;
    while (begin > 0 && is_part(PyUnicode_READ(kind, text, begin - 1))) begin--;
    while (end < length && is_part(PyUnicode_READ(kind, text, end))) end++;
    *at = end;
    if (end - begin > NUMBER_MAX) return 1;
    for (Py_ssize_t place = begin; place < end; place++) {
        char sign = (char)PyUnicode_READ(kind, text, place);
        number[size++] = sign;
        decimals += points;
        if (sign == '.') points++;
        else if (count || sign != '0') digits[count++] = sign;
    }
    int has_exponent = end < length && (PyUnicode_READ(kind, text, end) | 0x20) == 'e';
    if (points > 1 || (!points && !has_exponent)) return 0; /* not a number, or an integer */
    if (points)
        while (count && digits[count - 1] == '0') count--, decimals--;
    if (!count) return 0;
    if (has_exponent) {
        Py_ssize_t added = exponent_at(kind, text, length, end, number + size);
        if (added >= 5) return 1;
        size += added;
    }
    if (count <= DIGITS_HELD && end - begin <= NUMBER_USUAL) return 0;
    if (!has_exponent && is_surely_held(digits, count, decimals)) return 0;
    number[size] = 0;
    return has_other_digits(number, digits, count);
}

/* Returns where the next minus is, the length if there is none. */
static Py_ssize_t next_minus(int kind, const void *text, Py_ssize_t length, Py_ssize_t at)
{
    if (at >= length) return length;
    if (kind == PyUnicode_1BYTE_KIND) {
        const char *found = memchr((const char *)text + at, '-', (size_t)(length - at));
        return found == NULL ? length : found - (const char *)text;
    }
    while (at < length && PyUnicode_READ(kind, text, at) != '-') at++;
    return at;
}

static int has_rounded(int kind, const void *text, Py_ssize_t length)
{
    for (Py_ssize_t at = RUN - 1; at < length; at += RUN) { /* a number with so many digits covers such a place */
        if (!is_part(PyUnicode_READ(kind, text, at))) continue;
        Py_ssize_t end = at;
        if (is_rounded(kind, text, length, &end)) return 1;
        at = end - end % RUN - 1;
    }
    for (Py_ssize_t at = 2; (at = next_minus(kind, text, length, at)) < length; at++) { /* small exponents */
        Py_ssize_t end = at - 1;
        if ((PyUnicode_READ(kind, text, end) | 0x20) == 'e' && is_part(PyUnicode_READ(kind, text, end - 1)) &&
            is_rounded(kind, text, length, &end))
            return 1;
    }
    return 0;
}

/* rounds_numbers(lines: list of str or bytes): returns whether a float may change a number of them. */
static PyObject *rounds_numbers(PyObject *Py_UNUSED(module), PyObject *lines)
{
    if (!PyList_CheckExact(lines)) return PyErr_Format(PyExc_TypeError, "lines are a list");
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(lines); index++) {
        PyObject *line = PyList_GET_ITEM(lines, index);
        int found;
        if (PyUnicode_Check(line))
            found = has_rounded(PyUnicode_KIND(line), PyUnicode_DATA(line), PyUnicode_GET_LENGTH(line));
        else if (PyBytes_Check(line))
            found = has_rounded(PyUnicode_1BYTE_KIND, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line));
        else return PyErr_Format(PyExc_TypeError, "a line is a str or bytes");
        if (found) Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

PyMethodDef texts_methods[] = {
    {"keys_max", keys_max, METH_O, "keys_max(lines)"},
    {"rounds_numbers", rounds_numbers, METH_O, "rounds_numbers(lines)"},
    {NULL, NULL, 0, NULL},
};
