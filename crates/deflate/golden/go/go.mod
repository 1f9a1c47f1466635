module golden

go 1.26
