"""The same agent on Clonos and on other engines that remember its calls, while its process is killed."""
