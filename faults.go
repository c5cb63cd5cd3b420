package toll

import "fmt"

// faultList collects the errors of one body. It reports all missing and malformed members together. A contradiction is
// reported alone, because its code is more specific than a list.
type faultList struct {
	faults []Fault
	first  *Error
}

// at joins the path of an object and the name of one of its members.
func at(path, member string) string {
	if path == "" || member == "" {
		return path + member
	}
	return path + "." + member
}

// pathIf returns path when the object is present, else "".
func pathIf(path string, there bool) string {
	if !there {
		return ""
	}
	return path
}

func (f *faultList) add(path, format string, args ...any) {
	f.faults = append(f.faults, Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

// contradiction keeps the first error with a more specific code than [CodeBadRequest].
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
