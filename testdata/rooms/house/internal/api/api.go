package api

type Deps struct {
	A, B, C, D, E, F, G, H int
	I, J, K, L, M, N, O, P int
}

type handler struct{}

func (h *handler) m0()  {}
func (h *handler) m1()  {}
func (h *handler) m2()  {}
func (h *handler) m3()  {}
func (h *handler) m4()  {}
func (h *handler) m5()  {}
func (h *handler) m6()  {}
func (h *handler) m7()  {}
func (h *handler) m8()  {}
func (h *handler) m9()  {}
func (h *handler) m10() {}
func (h *handler) m11() {}
func (h *handler) m12() {}
func (h *handler) m13() {}
func (h *handler) m14() {}
func (h *handler) m15() {}
func (h *handler) m16() {}
func (h *handler) m17() {}
func (h *handler) m18() {}
func (h *handler) m19() {}
func (h *handler) m20() {}
