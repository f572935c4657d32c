"""Application of a server: the URLs of a driver's API, answered by a living driver or from the register."""
