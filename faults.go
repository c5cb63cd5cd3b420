package toll

import "fmt"

// faultList gathers what is wrong with one body. Missing and malformed members are reported all at once, a contradiction
// is reported alone, as its code says more than a list would.
type faultList struct {
	faults []Fault
	first  *Error
}

// at joins the path of an object and the name of a member of it.
func at(path, member string) string {
	if path == "" || member == "" {
		return path + member
	}
	return path + "." + member
}

// pathIf is the path of an object that is there, else "".
func pathIf(path string, there bool) string {
	if !there {
		return ""
	}
	return path
}

func (f *faultList) add(path, format string, args ...any) {
	f.faults = append(f.faults, Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

// contradiction keeps the first error that has a code of its own.
func (f *faultList) contradiction(code Code, path, format string, args ...any) {
	if f.first == nil {
		f.first = Errorf(code, format, args...).WithParam("path", path)
	}
}

func (f *faultList) err() error {
	if len(f.faults) > 0 {
		return Faults(f.faults)
	}
	if f.first != nil {
		return f.first
	}
	return nil
}
