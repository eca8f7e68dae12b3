# What a person starts first: a script with a library of some hundred files.
import decimal
import json
import numpy

print(json.dumps(str(decimal.Decimal(int(numpy.arange(10).sum())))))
