package server

// Within is the time that each part of a shutdown has.
var Within = within
