package util // want `a directory that is no room: add it to the table` // want `a package is not called util`

const Word = ""
