/* Python objects from columns and back: datetimes from and to microseconds, dicts from lists of their values. */

#include "native.h"
#include <datetime.h>

#define DAY_US INT64_C(86400000000)
#define DAYS_BEFORE_1970 719468 /* since 1 March of the year 0, with which a cycle of leap years begins */
#define CYCLE_DAYS 146097       /* of 400 years */
#define FIRST_US INT64_C(-62135596800000000) /* the year 1 */
#define END_US INT64_C(253402300800000000)   /* the year 10000 */

/* Returns a datetime. Years begin in March here, so that the day that some have is their last. */
static PyObject *datetime_of(int64_t us, PyObject *zone)
{
    int64_t days = us / DAY_US, of_day = us % DAY_US;
    if (of_day < 0) { of_day += DAY_US; days--; }
    int64_t since = days + DAYS_BEFORE_1970; /* never negative from the year 1 on */
    int cycle = (int)(since / CYCLE_DAYS), day = (int)(since % CYCLE_DAYS);
    int year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    int of_year = day - (365 * year + year / 4 - year / 100);
    int month = (5 * of_year + 2) / 153;
    int of_month = of_year - (153 * month + 2) / 5 + 1;
    int second = (int)(of_day / 1000000);
    return PyDateTimeAPI->DateTime_FromDateAndTime(year + 400 * cycle + (month >= 10), month < 10 ? month + 3 : month - 9,
                                                   of_month, second / 3600, second / 60 % 60, second % 60,
                                                   (int)(of_day % 1000000), zone, PyDateTimeAPI->DateTimeType);
}

/* datetimes(us: int64, zone) -> list: the datetime with this time zone, or None for it, of each number of microseconds
 * since 1970 in local time. */
static PyObject *datetimes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *us_object, *zone, *found;
    Items us;
    if (!PyArg_ParseTuple(args, "OO", &us_object, &zone)) return NULL;
    if (PyDateTimeAPI == NULL) PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL) return NULL;
    if (zone != Py_None && !PyTZInfo_Check(zone)) {
        PyErr_SetString(PyExc_TypeError, "a time zone is a tzinfo or None");
        return NULL;
    }
    if (take_items(us_object, 8, 0, "us", &us) < 0) return NULL;
    found = PyList_New((Py_ssize_t)us.items);
    for (int64_t row = 0; found != NULL && row < us.items; row++) {
        int64_t each = load_i64(us.data, row);
        PyObject *made = NULL;
        if (LIKELY(FIRST_US <= each && each < END_US)) made = datetime_of(each, zone);
        else PyErr_SetString(PyExc_OverflowError, "date value out of range");
        if (made == NULL) Py_CLEAR(found);
        else PyList_SET_ITEM(found, (Py_ssize_t)row, made);
    }
    release_items(&us);
    return found;
}

/* Returns the microseconds since 1970 of a datetime as its zone shows it. */
static int64_t wall_of(PyObject *cell)
{
    int month = PyDateTime_GET_MONTH(cell), year = PyDateTime_GET_YEAR(cell) - (month < 3); /* begins in March, as above */
    int of_year = (153 * (month < 3 ? month + 9 : month - 3) + 2) / 5 + PyDateTime_GET_DAY(cell) - 1;
    int64_t days = INT64_C(365) * year + year / 4 - year / 100 + year / 400 + of_year - DAYS_BEFORE_1970;
    int64_t seconds = 3600 * PyDateTime_DATE_GET_HOUR(cell) + 60 * PyDateTime_DATE_GET_MINUTE(cell) +
                      PyDateTime_DATE_GET_SECOND(cell);
    return days * DAY_US + seconds * 1000000 + PyDateTime_DATE_GET_MICROSECOND(cell);
}

/* walls(cells: list or tuple) -> list: the microseconds since 1970 of each datetime as its zone shows it; None if not all
 * are datetimes with the same zone and without a fold. */
static PyObject *walls(PyObject *Py_UNUSED(module), PyObject *cells)
{
    if (!PyList_CheckExact(cells) && !PyTuple_CheckExact(cells))
        return PyErr_Format(PyExc_TypeError, "cells are a list or a tuple");
    if (PyDateTimeAPI == NULL) PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(cells);
    PyObject **each = PySequence_Fast_ITEMS(cells); /* no code of the user runs below */
    for (Py_ssize_t row = 0; row < count; row++)
        if (!PyDateTime_CheckExact(each[row]) || PyDateTime_DATE_GET_FOLD(each[row]) ||
            PyDateTime_DATE_GET_TZINFO(each[row]) != PyDateTime_DATE_GET_TZINFO(each[0]))
            Py_RETURN_NONE;
    PyObject *found = PyList_New(count);
    for (Py_ssize_t row = 0; found != NULL && row < count; row++) {
        PyObject *wall = PyLong_FromLongLong(wall_of(each[row]));
        if (wall == NULL) Py_CLEAR(found);
        else PyList_SET_ITEM(found, row, wall);
    }
    return found;
}

/* Returns a dict of the values of a row, from a copy of another row's or of one without values. */
static PyObject *dict_of(PyObject *empty, PyObject *names, PyObject *columns, Py_ssize_t row)
{
    PyObject *made = PyDict_Copy(empty);
    for (Py_ssize_t number = 0; made != NULL && number < PyTuple_GET_SIZE(names); number++) {
        PyObject *cells = PyTuple_GET_ITEM(columns, number);
        if (row >= PyList_GET_SIZE(cells)) { /* a list may have changed since it was checked */
            PyErr_SetString(PyExc_ValueError, "a column became shorter");
            Py_CLEAR(made);
        } else if (PyDict_SetItem(made, PyTuple_GET_ITEM(names, number), PyList_GET_ITEM(cells, row)) < 0) {
            Py_CLEAR(made);
        }
    }
    return made;
}

/* dicts(names: tuple, columns: tuple of lists, count) -> list: for each row a dict of its values by name. */
static PyObject *dicts(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *names, *columns, *empty, *found;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!O!n", &PyTuple_Type, &names, &PyTuple_Type, &columns, &count)) return NULL;
    if (count < 0 || PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(columns))
        return PyErr_Format(PyExc_ValueError, "%zd names, %zd columns and %zd rows are not possible",
                            PyTuple_GET_SIZE(names), PyTuple_GET_SIZE(columns), count);
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(names); number++) {
        PyObject *cells = PyTuple_GET_ITEM(columns, number);
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, number)) || !PyList_CheckExact(cells)) {
            PyErr_SetString(PyExc_TypeError, "a name is a str, and a column a list");
            return NULL;
        }
        if (PyList_GET_SIZE(cells) != count)
            return PyErr_Format(PyExc_ValueError, "a column has %zd values, and there are %zd rows", PyList_GET_SIZE(cells),
                                count);
    }
    empty = PyDict_New();
    for (Py_ssize_t number = 0; empty != NULL && number < PyTuple_GET_SIZE(names); number++)
        if (PyDict_SetItem(empty, PyTuple_GET_ITEM(names, number), Py_None) < 0) Py_CLEAR(empty);
    if (empty == NULL) return NULL;
    found = PyList_New(count);
    for (Py_ssize_t row = 0; found != NULL && row < count; row++) {
        PyObject *made = dict_of(empty, names, columns, row);
        if (made == NULL) Py_CLEAR(found);
        else PyList_SET_ITEM(found, row, made);
    }
    Py_DECREF(empty);
    return found;
}

PyMethodDef records_methods[] = {
    {"walls", walls, METH_O, "walls(cells): microseconds since 1970 of datetimes of one zone, as it shows them."},
    {"datetimes", datetimes, METH_VARARGS, "datetimes(us, zone): a datetime of each number of microseconds since 1970."},
    {"dicts", dicts, METH_VARARGS, "dicts(names, columns, count): a dict of the values of each row."},
    {NULL, NULL, 0, NULL},
};
