/* Functions over rows, which are Python objects: rows by receiver, functions with state per key. cells.c encodes rows.
 *
 * A key or a function of the user may run Python code, which may change any list: so sizes are read anew after each call. */

#include "native.h"

#define AHEAD 8 /* keys that are fetched before they are read */

/* --- rows by receiver */

#define NO_TARGET PY_SSIZE_T_MIN
#define FAILED (PY_SSIZE_T_MIN + 1)

/* Returns the place of a key's receiver: that of its group, which is hashed here for most keys, else that in `targets`.
 * Returns NO_TARGET, or FAILED with an exception. */
static Py_ssize_t place_of(PyObject *key, const Items *tasks, PyObject *targets)
{
    int32_t group = group_of_object(key, (uint64_t)tasks->items);
    if (LIKELY(group >= 0)) return load_i32(tasks->data, group);
    Py_INCREF(key); /* its comparison may drop it */
    PyObject *target = PyDict_GetItemWithError(targets, key);
    Py_ssize_t place = target == NULL ? NO_TARGET : PyLong_AsSsize_t(target);
    Py_DECREF(key); /* which may end the target */
    return PyErr_Occurred() ? FAILED : place;
}

/* Returns whether a list at `place` of a list is there and may be appended to; raises if not. */
static PyObject *part_at(PyObject *parts, Py_ssize_t place)
{
    if (place >= 0 && place < PyList_GET_SIZE(parts) && PyList_CheckExact(PyList_GET_ITEM(parts, place)))
        return PyList_GET_ITEM(parts, place);
    PyErr_Format(PyExc_IndexError, "receiver %zd was given, and there are %zd", place, PyList_GET_SIZE(parts));
    return NULL;
}

/* Appends what each column has at `index` to its part of the receiver. Returns 0, or -1 with an exception. */
static int append_row(PyObject *columns, PyObject *parts, Py_ssize_t index, Py_ssize_t place)
{
    for (Py_ssize_t column = 0; column < PyTuple_GET_SIZE(columns); column++) {
        PyObject *cells = PyTuple_GET_ITEM(columns, column), *part = part_at(PyTuple_GET_ITEM(parts, column), place);
        if (part == NULL) return -1;
        if (index < PyList_GET_SIZE(cells) && PyList_Append(part, PyList_GET_ITEM(cells, index)) < 0) return -1;
    }
    return 0;
}

/* Appends rows to parts from `index` on. Returns the index of the first key that has no target, the number of rows, or -1
 * with an exception. */
static Py_ssize_t split_from(Py_ssize_t index, PyObject *keys, PyObject *columns, const Items *tasks, PyObject *targets,
                             PyObject *parts)
{
    PyObject *rows = PyTuple_GET_ITEM(columns, 0);
    for (; index < PyList_GET_SIZE(keys) && index < PyList_GET_SIZE(rows); index++) {
        if (index + AHEAD < PyList_GET_SIZE(keys)) FETCH((const char *)PyList_GET_ITEM(keys, index + AHEAD) + 16);
        Py_ssize_t place = place_of(PyList_GET_ITEM(keys, index), tasks, targets);
        if (place == NO_TARGET) break;
        if (place == FAILED || append_row(columns, parts, index, place) < 0) return -1;
    }
    return index;
}

/* Returns 0 if there is a column, each is a list as long as the keys, and each has its list of parts; else -1. */
static int check_columns(PyObject *keys, PyObject *columns, PyObject *parts)
{
    Py_ssize_t count = PyTuple_GET_SIZE(columns);
    if (count == 0 || PyTuple_GET_SIZE(parts) != count) {
        PyErr_Format(PyExc_ValueError, "%zd columns and the parts of %zd", count, PyTuple_GET_SIZE(parts));
        return -1;
    }
    for (Py_ssize_t column = 0; column < count; column++) {
        PyObject *cells = PyTuple_GET_ITEM(columns, column);
        if (!PyList_CheckExact(cells) || !PyList_CheckExact(PyTuple_GET_ITEM(parts, column))) {
            PyErr_SetString(PyExc_TypeError, "a column and its parts are lists");
            return -1;
        }
        if (PyList_GET_SIZE(cells) != PyList_GET_SIZE(keys)) {
            PyErr_Format(PyExc_ValueError, "%zd keys of %zd rows", PyList_GET_SIZE(keys), PyList_GET_SIZE(cells));
            return -1;
        }
    }
    return 0;
}

/* split_rows(keys, columns, first, tasks, targets, parts): appends column[i] of each column to its part of the receiver of
 * keys[i], from `first` on: tasks[key group], or targets[key] for keys that are not hashed here.
 * Returns the index of the first key that has no target, or the number of rows. */
static PyObject *split_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *keys, *columns, *targets, *parts, *tasks_object;
    Py_ssize_t index;
    Items tasks;
    if (!PyArg_ParseTuple(args, "O!O!nOO!O!", &PyList_Type, &keys, &PyTuple_Type, &columns, &index, &tasks_object,
                          &PyDict_Type, &targets, &PyTuple_Type, &parts))
        return NULL;
    if (check_columns(keys, columns, parts) < 0) return NULL;
    if (index < 0) return PyErr_Format(PyExc_ValueError, "%zd keys of rows from %zd on", PyList_GET_SIZE(keys), index);
    if (take_items(tasks_object, 4, 0, "tasks", &tasks) < 0) return NULL;
    index = tasks.items ? split_from(index, keys, columns, &tasks, targets, parts) : -1;
    if (!tasks.items) PyErr_SetString(PyExc_ValueError, "there is at least one key group");
    release_items(&tasks);
    return index < 0 ? NULL : PyLong_FromSsize_t(index);
}

/* Moves the rows of a piece out of its list, which gets None in their places: no row is touched, so that none is fetched
 * from memory. Returns 0, or -1 with an exception. */
static int move_piece(PyObject *piece, PyObject *rows, Py_ssize_t *moved)
{
    PyObject *source;
    Py_ssize_t first, count;
    if (!PyTuple_CheckExact(piece)) {
        PyErr_SetString(PyExc_TypeError, "a piece is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(piece, "O!nn", &PyList_Type, &source, &first, &count)) return -1;
    if (source == rows || first < 0 || count < 0 || first > PyList_GET_SIZE(source) - count ||
        count > PyList_GET_SIZE(rows) - *moved) {
        PyErr_Format(PyExc_IndexError, "%zd rows from %zd on, of a list of %zd", count, first, PyList_GET_SIZE(source));
        return -1;
    }
    for (Py_ssize_t index = first; index < first + count; index++) {
        PyList_SET_ITEM(rows, (*moved)++, PyList_GET_ITEM(source, index));
        PyList_SET_ITEM(source, index, Py_NewRef(Py_None));
    }
    return 0;
}

/* Moves the rows of all pieces. A place may be of the user's type, whose __index__ may drop the piece and its list. */
static int move_rows(PyObject *pieces, PyObject *rows)
{
    Py_ssize_t moved = 0;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(pieces); index++) {
        PyObject *piece = Py_NewRef(PyList_GET_ITEM(pieces, index));
        int failed = move_piece(piece, rows, &moved) < 0;
        Py_DECREF(piece);
        if (failed) return -1;
    }
    if (moved == PyList_GET_SIZE(rows)) return 0;
    PyErr_Format(PyExc_ValueError, "%zd rows for a list of %zd", moved, PyList_GET_SIZE(rows));
    return -1;
}

/* take_rows(pieces, count): returns a list of `count` rows, which are moved out of pieces (list, first, number of rows). */
static PyObject *take_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *pieces;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &pieces, &count)) return NULL;
    if (count < 0) return PyErr_Format(PyExc_ValueError, "%zd rows", count);
    PyObject *rows = PyList_New(count);
    if (rows == NULL || move_rows(pieces, rows) == 0) return rows;
    Py_DECREF(rows);
    return NULL;
}

/* --- rows by time */

/* Returns the number of the span that has an instant, for spans that begin at `starts`; the first one has all before. */
static Py_ssize_t span_of(const Items *starts, int64_t instant)
{
    Py_ssize_t low = 0, high = (Py_ssize_t)starts->items; /* most spans are few, and next to the one before */
    while (low + 1 < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (load_i64(starts->data, middle) <= instant) low = middle;
        else high = middle;
    }
    return low;
}

static int append_by_time(PyObject *rows, const Items *times, const Items *starts, PyObject *found)
{
    int64_t begin = 0, end = 0;
    PyObject *part = NULL;
    for (int64_t row = 0; row < times->items; row++) {
        int64_t instant = load_i64(times->data, row);
        if (part == NULL || instant < begin || instant >= end) {
            Py_ssize_t span = span_of(starts, instant);
            begin = span == 0 ? INT64_MIN : load_i64(starts->data, span);
            end = span + 1 < starts->items ? load_i64(starts->data, span + 1) : INT64_MAX;
            PyObject *number = PyLong_FromSsize_t(span);
            part = number == NULL ? NULL : PyDict_GetItemWithError(found, number);
            if (part == NULL && number != NULL && !PyErr_Occurred() && (part = PyList_New(0)) != NULL) {
                if (PyDict_SetItem(found, number, part) < 0) Py_CLEAR(part);
                else Py_DECREF(part); /* the dict has it */
            }
            Py_XDECREF(number);
            if (part == NULL) return -1;
        }
        if (PyList_Append(part, PyList_GET_ITEM(rows, row)) < 0) return -1;
    }
    return 0;
}

/* split_by_time(rows, times: int64, starts: int64) -> dict: the rows of each span by its number, in the order in which
 * spans occur; span i begins at starts[i], ascending, and the first one has all that is before. */
static PyObject *split_by_time(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *rows, *times_object, *starts_object, *found = NULL;
    Items times, starts;
    if (!PyArg_ParseTuple(args, "O!OO", &PyList_Type, &rows, &times_object, &starts_object)) return NULL;
    if (take_items(times_object, 8, 0, "times", &times) < 0) return NULL;
    if (take_items(starts_object, 8, 0, "starts", &starts) < 0) {
        release_items(&times);
        return NULL;
    }
    if (starts.items == 0) PyErr_SetString(PyExc_ValueError, "there is at least one span");
    else if (check_equal(times.items, PyList_GET_SIZE(rows), "times") == 0) found = PyDict_New();
    if (found != NULL && append_by_time(rows, &times, &starts, found) < 0) Py_CLEAR(found);
    release_items(&starts);
    release_items(&times);
    return found;
}

/* bounds(times: int64) -> (least, most) of at least one. */
static PyObject *bounds(PyObject *Py_UNUSED(module), PyObject *times_object)
{
    Items times;
    if (take_items(times_object, 8, 0, "times", &times) < 0) return NULL;
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t row = 0; row < times.items; row++) {
        int64_t instant = load_i64(times.data, row);
        if (instant < least) least = instant;
        if (instant > most) most = instant;
    }
    int is_empty = times.items == 0;
    release_items(&times);
    if (is_empty) return PyErr_Format(PyExc_ValueError, "there is no time");
    return Py_BuildValue("(LL)", (long long)least, (long long)most);
}

/* --- functions with state per key */

/* Types of clonos.core.values.copying.IMMUTABLE that are frequent; the caller looks at values of others. */
static int is_plain(PyObject *value)
{
    return value == Py_None || PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
           PyBool_Check(value) || PyBytes_CheckExact(value);
}

static int is_immutable(PyObject *value)
{
    if (!PyTuple_CheckExact(value)) return is_plain(value);
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(value); index++)
        if (!is_plain(PyTuple_GET_ITEM(value, index))) return 0;
    return 1;
}

static int is_pair(PyObject *object) { return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2; }

/* Returns whether a key represents itself in state, whatever other keys there are. */
static int is_own_key(PyObject *key)
{
    return PyLong_CheckExact(key) || PyUnicode_CheckExact(key) || PyBytes_CheckExact(key);
}

/* Looks up the state of a pair, and fetches its first cells. Returns 1, 0 if it is no pair or its key does not represent
 * itself in state, or -1 with an exception. */
static int fetch_state(PyObject *pair, PyObject *entries)
{
    if (!is_pair(pair)) return 0;
    PyObject *key = PyTuple_GET_ITEM(pair, 0);
    if (!is_own_key(key)) return 0;
    PyObject *state = PyDict_GetItemWithError(entries, key);
    if (state == NULL && PyErr_Occurred()) return -1;
    if (state != NULL && PyTuple_CheckExact(state))
        for (Py_ssize_t cell = 0; cell < PyTuple_GET_SIZE(state) && cell < 4; cell++)
            FETCH(PyTuple_GET_ITEM(state, cell));
    return 1;
}

/* Looks up all keys before the first call, so that their misses of the processor's cache overlap. A key of the table may
 * be of the user's type, whose comparison may drop the rows. Returns what fetch_state returns. */
static int fetch_states(PyObject *rows, PyObject *entries)
{
    int found = 1;
    for (Py_ssize_t index = 0; found > 0 && index < PyList_GET_SIZE(rows); index++) {
        PyObject *pair = Py_NewRef(PyList_GET_ITEM(rows, index));
        found = fetch_state(pair, entries);
        Py_DECREF(pair);
    }
    return found;
}

/* Notes that the states of rows were changed. Returns 0, or -1 with an exception. */
static int note_changes(PyObject *rows, Py_ssize_t *first, Py_ssize_t end, PyObject *changed)
{
    for (; *first < end && *first < PyList_GET_SIZE(rows); ++*first) {
        PyObject *pair = Py_NewRef(PyList_GET_ITEM(rows, *first));
        int failed = is_pair(pair) && PyDict_SetItem(changed, PyTuple_GET_ITEM(pair, 0), Py_None) < 0;
        Py_DECREF(pair);
        if (failed) return -1;
    }
    return 0;
}

typedef struct {
    PyObject *entries, *changed, *results, *remove, *pair_of, *result_beside;
} Fold;

/* Keeps the state and appends the result that a function has returned. Returns 0, or -1 with an exception. */
static int keep(const Fold *fold, PyObject *key, PyObject *found)
{
    PyObject *state = PyTuple_GET_ITEM(found, 0), *result = Py_NewRef(PyTuple_GET_ITEM(found, 1));
    int failed;
    if (state == Py_None) {
        PyObject *removed = PyObject_CallOneArg(fold->remove, key);
        failed = removed == NULL;
        Py_XDECREF(removed);
    } else {
        failed = PyDict_SetItem(fold->entries, key, state) < 0;
    }
    if (!failed && !is_immutable(state)) {
        Py_SETREF(result, PyObject_CallFunctionObjArgs(fold->result_beside, state, result, NULL));
        failed = result == NULL;
    }
    failed = failed || PyList_Append(fold->results, result) < 0;
    Py_XDECREF(result);
    return failed ? -1 : 0;
}

/* Calls the function for one pair and returns (state, result), or NULL with an exception. */
static PyObject *call(const Fold *fold, PyObject *function, PyObject *pair)
{
    PyObject *state = PyDict_GetItemWithError(fold->entries, PyTuple_GET_ITEM(pair, 0));
    if (state == NULL && PyErr_Occurred()) return NULL;
    state = Py_NewRef(state == NULL ? Py_None : state);
    /* The place in front is for the callee, who may put an argument there. */
    PyObject *arguments[] = {NULL, PyTuple_GET_ITEM(pair, 0), state, PyTuple_GET_ITEM(pair, 1)};
    PyObject *found = PyObject_Vectorcall(function, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(state);
    if (found == NULL || is_pair(found)) return found;
    Py_SETREF(found, PyObject_CallOneArg(fold->pair_of, found)); /* raises unless it is a list or another tuple of two */
    if (found == NULL || is_pair(found)) return found;
    Py_DECREF(found);
    PyErr_SetString(PyExc_TypeError, "a result and its state are a pair");
    return NULL;
}

/* fold_rows(records, rows, function, entries, changed, results, remove, pair_of, result_beside): calls
 * function(key, state, value) for each pair (key, value) of `rows`, whose iterator is `records`, keeps the state and
 * appends the result. Returns False, and does nothing, if not all keys represent themselves. */
static PyObject *fold_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *records, *rows, *function, *pair;
    Fold fold;
    if (!PyArg_ParseTuple(args, "OO!OO!O!O!OOO", &records, &PyList_Type, &rows, &function, &PyDict_Type, &fold.entries,
                          &PyDict_Type, &fold.changed, &PyList_Type, &fold.results, &fold.remove, &fold.pair_of,
                          &fold.result_beside))
        return NULL;
    if (!PyIter_Check(records)) return PyErr_Format(PyExc_TypeError, "%R is no iterator", records);
    int failed = fetch_states(rows, fold.entries);
    if (failed <= 0) return failed < 0 ? NULL : Py_NewRef(Py_False);
    failed = 0;
    Py_ssize_t noted = 0, count = 0;
    while (!failed && (pair = PyIter_Next(records)) != NULL) {
        PyObject *found = is_pair(pair) ? call(&fold, function, pair) : PyErr_Format(PyExc_ValueError, "no pair");
        failed = found == NULL;
        /* A deletion has its place between changes. */
        if (!failed && PyTuple_GET_ITEM(found, 0) == Py_None) {
            failed = note_changes(rows, &noted, count, fold.changed) < 0;
            noted = count + 1;
        }
        failed = failed || keep(&fold, PyTuple_GET_ITEM(pair, 0), found) < 0;
        count += !failed;
        Py_XDECREF(found);
        Py_DECREF(pair);
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (note_changes(rows, &noted, count, fold.changed) == 0) PyErr_Restore(type, value, traceback);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_True);
}

/* Returns (key, next number of its counter), or NULL with an exception. The dict makes a counter that is missing. */
static PyObject *counted(PyObject *counters, PyObject *key)
{
    PyObject *counter = Py_XNewRef(PyDict_GetItemWithError(counters, key));
    if (counter == NULL && !PyErr_Occurred()) counter = PyObject_GetItem(counters, key);
    if (counter == NULL) return NULL;
    PyObject *number = PyIter_Check(counter) ? PyIter_Next(counter) : NULL;
    if (number == NULL && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%R has no next number", counter);
    Py_DECREF(counter);
    PyObject *pair = number == NULL ? NULL : PyTuple_New(2);
    if (pair == NULL) {
        Py_XDECREF(number);
        return NULL;
    }
    PyTuple_SET_ITEM(pair, 0, Py_NewRef(key));
    PyTuple_SET_ITEM(pair, 1, number);
    return pair;
}

/* count_keys(keys: list, counters: dict) -> list: (key, next number of its counter) for each key; None, and no counter
 * has changed, if not all keys represent themselves. */
static PyObject *count_keys(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *keys, *counters;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &keys, &PyDict_Type, &counters)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(keys);
    for (Py_ssize_t index = 0; index < count; index++) {
        if (index + AHEAD < count) FETCH((const char *)PyList_GET_ITEM(keys, index + AHEAD) + 16);
        if (!is_own_key(PyList_GET_ITEM(keys, index))) Py_RETURN_NONE;
    }
    PyObject *found = PyList_New(count);
    for (Py_ssize_t index = 0; found != NULL && index < count; index++) {
        PyObject *pair = NULL;
        if (index < PyList_GET_SIZE(keys)) { /* a comparison may have dropped keys */
            PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, index));
            pair = counted(counters, key);
            Py_DECREF(key);
        } else {
            PyErr_SetString(PyExc_ValueError, "keys became fewer");
        }
        if (pair == NULL) Py_CLEAR(found);
        else PyList_SET_ITEM(found, index, pair);
    }
    return found;
}

PyMethodDef rows_methods[] = {
    {"split_rows", split_rows, METH_VARARGS, "Appends each row of columns to the lists of the receiver of its key."},
    {"take_rows", take_rows, METH_VARARGS, "Moves rows out of pieces of lists into a new list."},
    {"split_by_time", split_by_time, METH_VARARGS, "split_by_time(rows, times, starts): the rows of each span of time."},
    {"bounds", bounds, METH_O, "bounds(times): the least and the most of numbers of 64 bits."},
    {"count_keys", count_keys, METH_VARARGS, "count_keys(keys, counters): each key with the next number of its counter."},
    {"fold_rows", fold_rows, METH_VARARGS, "Calls a function with the state of the key of each row."},
    {NULL, NULL, 0, NULL},
};
