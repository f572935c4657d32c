/* Counts of what texts of JSON have. */

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

PyMethodDef texts_methods[] = {
    {"keys_max", keys_max, METH_O, "keys_max(lines)"},
    {NULL, NULL, 0, NULL},
};
