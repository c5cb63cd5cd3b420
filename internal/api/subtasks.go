package api

func subTaskRoutes() []route { return nil }
