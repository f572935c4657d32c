/* The extension clonos.kernels._native: its module, and the buffers of callers. */

#include "native.h"

int take_items(PyObject *object, int64_t item_bytes, int is_written, const char *name, Items *items)
{
    int flags = PyBUF_C_CONTIGUOUS | (is_written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &items->view, flags) < 0) return -1;
    items->data = items->view.buf;
    items->items = items->view.len / item_bytes;
    if (items->items * item_bytes == items->view.len) return 0;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes, which is no multiple of %lld", name, items->view.len,
                 (long long)item_bytes);
    PyBuffer_Release(&items->view);
    return -1;
}

int check_equal(int64_t items, int64_t wanted, const char *name)
{
    if (items == wanted) return 0;
    PyErr_Format(PyExc_ValueError, "%s has %lld items, and %lld are needed", name, (long long)items, (long long)wanted);
    return -1;
}

void *too_many_keys(int64_t slots_max)
{
    return PyErr_Format(PyExc_OverflowError, "an index has at most %lld keys: use more tasks, or let state expire",
                        (long long)slots_max);
}

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL) return -1;
    int result = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return result;
}

static int fill_module(PyObject *module)
{
    if (add_type(module, &int64_index_spec) < 0 || add_type(module, &bytes_index_spec) < 0) return -1;
    if (PyModule_AddFunctions(module, gather_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, gather_parts_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, timed_runs_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, running_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, ranks_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, cells_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, rows_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, records_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, texts_methods) < 0) return -1;
    return PyModule_AddFunctions(module, key_groups_methods);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "clonos.kernels._native",
    .m_doc = "Native kernels. Use clonos.kernels, which checks types and chooses the twins in numpy where this is missing.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module_definition); }
